"""Writes a small byte-level BPE tokenizer and what Hugging Face tokenizers makes of many strings.

    python make_tokenizer_golden.py --out tokenizer

tokenizer.json has a vocabulary of 1,024 and the pre-tokenizer of the shipped pair. cases.json holds, for it and for
variants of its pre-tokenizer and added tokens, [text, ids with special tokens, ids with special tokens as plain text].
The second list is left out where both are equal. decode holds [ids, text with and text without special tokens].
"""

import argparse
import copy
import json
import pathlib
import random

import tokenizers

PAIR_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")

SPECIAL = ["[BOS]", "[EOS]", "[PAD]", "<|mask|>", "<|im_end|>", "<|im_user|>", "<|im_assistant|>", "<|im_system|>",
           "<|im_middle|>"]

SENTENCES = """\
The verifier checks the whole tree in one forward pass and keeps the longest true path.
It's what they're saying: we've seen that I'll go, he'd stay, YOU'RE RIGHT, don'T they?
for (int i = 0; i < count; ++i) { sum += values[i] * weights[i]; }  // the usual loop
def encode(self, text):\n    return [self.vocab[piece] for piece in text.split()]
Der schnelle braune Fuchs springt über den faulen Hund; größer, schöner, heißer.
Le cœur déçu mais l'âme plutôt naïve, Louÿs rêva de crapaüter en canoë.
El pingüino Wenceslao hizo kilómetros bajo exhaustiva lluvia y frío.
Съешь же ещё этих мягких французских булок, да выпей чаю.
Η γρήγορη αλεπού πηδάει πάνω από το τεμπέλικο σκυλί.
敏捷的棕色狐狸跳过了懒狗。树状推测解码保持输出不变。
素早い茶色の狐がのろまな犬を飛び越える。カタカナとひらがな。
다람쥐 헌 쳇바퀴에 타고파. 나무 구조로 추측합니다.
الثعلب البني السريع يقفز فوق الكلب الكسول ١٢٣٤
השועל החום המהיר קופץ מעל הכלב העצלן.
तेज़ भूरी लोमड़ी आलसी कुत्ते के ऊपर कूदती है। १२३
สุนัขจิ้งจอกสีน้ำตาลกระโดดข้ามสุนัขขี้เกียจ
ქართული ანბანი და ხუცური; Հայերեն այբուբեն
👩‍👩‍👧‍👦 👍🏽 🇩🇪🇯🇵 🏴󠁧󠁢󠁥󠁮󠁧󠁿 ❤️‍🔥 ☕️ 😀😃😄 1️⃣
½ + ¼ = ¾, x² + y³ ≠ ⅷ, №5, ①②③, ๑๒๓, 𝟘𝟙𝟚
e\u0301 a\u0308 o\u0302\u0323 Z\u0351\u036b\u0343\u036a n\u0303 \u1e69 \u0061\u0328\u0301
""".replace("\\n", "\n").splitlines()


def unescape(text):
    return text.encode("raw_unicode_escape").decode("unicode_escape") if "\\u" in text else text


def strings():
    generator = random.Random(20)
    base = [unescape(s) for s in SENTENCES]
    out = ["", " ", "  ", "   ", "\n", "\r\n", "\n\n\n", "\t", " \t ", "a", " a", "a ", "  a", "  a  ", "\n a", " \n a",
           "   \n\n   x", "\r\r\n\n", "\u00a0", "\u00a0x", "x\u00a0\u00a0y", "\u3000", "\u2003\u2003z", "\u200b", "\ufeffx",
           "\u180e x", "\u0085y", "\u2028z", "\x00", "\x00\x01\x02", "\x7f", "'s", "'S", "it'\u017f", "x'RE", "''", "'",
           "1234567", "1,234.5", "3.14e-10", "٣٤٥", "²³", "\U0010ffff", "\ud7ff", "\ue000", "\ufffd", "\uffff",
           "a" * 90, " " * 70, "\n" * 60, "ab" * 80, "1" * 40, "é" * 50, "語" * 40, "😀" * 30, "!?" * 40, "<|" * 30,
           "a\u0301" * 30, "[BOS]", "[BOS][BOS]", "x[EOS]y", " [PAD] ", "<|im_user|>user<|im_middle|>hi<|im_end|>",
           "<|im_user", "<|im_<|im_end|>", "[BO[BOS]S]", "<|mask|><|mask|", "[bos]", "a [EOS]\n", "\n[EOS] a"]
    out += base
    for text in base:  # pieces that begin and end anywhere
        for _ in range(7):
            begin = generator.randrange(len(text))
            out.append(text[begin:begin + generator.randrange(1, 24)])
    alphabets = ["abcdefgh ", "aA'sTtRe ", " \n\r\t", "01 29a", "éèê ñß", "ёжыд ", "漢字かなカナ", "한국어 ", "اب ت", "कखिा्",
                 "!@#$ %^&*()", "_-+={}[]();\n ", "😀👍🏽\u200d❤️", "\u00a0\u2003\u3000 x", "a\u0301\u0308 b", "Ａｂ１２"]
    for _ in range(160):
        alphabet = generator.choice(alphabets)
        out.append("".join(generator.choice(alphabet) for _ in range(generator.randrange(1, 30))))
    for _ in range(120):  # everything mixed
        alphabet = generator.sample(alphabets, 4)
        out.append("".join(generator.choice(generator.choice(alphabet)) for _ in range(generator.randrange(2, 24))))
    for _ in range(60):  # any character that every Unicode version of the last ten years knows or leaves alone
        ranges = [(0x20, 0x24F), (0x370, 0x3FF), (0x400, 0x52F), (0x5D0, 0x5EA), (0x621, 0x64A), (0x904, 0x939),
                  (0x2010, 0x205E), (0x20A0, 0x20BF), (0x2190, 0x23FF), (0x3041, 0x30FF), (0x4E00, 0x9FA5),
                  (0xAC00, 0xD7A3), (0x1F600, 0x1F64F), (0x1D400, 0x1D454)]
        out.append("".join(chr(generator.randint(*generator.choice(ranges))) for _ in range(generator.randrange(1, 20))))
    for _ in range(40):
        words = generator.choice(base).split(" ")
        words.insert(generator.randrange(len(words) + 1), generator.choice(SPECIAL))
        out.append(generator.choice([" ", "", "\n"]).join(words[:8]))
    return list(dict.fromkeys(out))


def train():
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
        tokenizers.pre_tokenizers.Split(tokenizers.Regex(PAIR_PATTERN), "isolated"),
        tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=1024, special_tokens=SPECIAL, show_progress=False, min_frequency=1,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([unescape(s) for s in SENTENCES] * 3 + [" " * 8, "\n\n", "aaaaaaaa"], trainer)
    return json.loads(tokenizer.to_str())


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def byte_level(prefix=False, regex=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def variants():
    """name -> (pre_tokenizer steps, ignore_merges, added tokens beside the special ones)"""
    deepseek = [split(r"\p{N}{1,3}"), split("[一-龥\u0800-\u4e00가-\ud7ff]+"),
                split(r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
                      r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")]
    lite = [split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split("[一-龥ࠀ-一가-힣]+"),
            {"type": "Digits", "individual_digits": True}]
    out = {"pair": ([split(PAIR_PATTERN), byte_level()], False, []),
           "gpt2": ([byte_level(prefix=True, regex=True)], False, []),
           "deepseek_v3": (deepseek + [byte_level()], False, []),
           "deepseek_v2": (lite + [byte_level()], True, []),
           "digits_together": ([{"type": "Digits", "individual_digits": False}, byte_level(prefix=True)], False, []),
           "han_apart": ([split(r"[\p{Han}]+|[\p{L}\p{M}&&[^\p{Han}]]+"), byte_level()], False, [])}
    for behavior in ["Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"]:
        out["space_" + behavior] = ([split(r"\s", behavior), byte_level(regex=True)], False, [])
        out["letters_inverted_" + behavior] = ([split(r"\p{L}+", behavior, invert=True), byte_level()], False, [])
    out["literal"] = ([split("a.", "MergedWithPrevious", kind="String"), split(" ", "MergedWithNext", kind="String"),
                       byte_level()], False, [])
    added = [dict(content="<left>", lstrip=True), dict(content="<right>", rstrip=True), dict(content="over"),
             dict(content="overt", normalized=True), dict(content="<|im_", lstrip=True, rstrip=True)]
    out["added_tokens"] = ([split(PAIR_PATTERN), byte_level()], False, added)
    return out


def added_strings():
    generator = random.Random(3)
    parts = ["<left>", "<right>", "over", "overt", "<|im_", "<|im_end|>", "[BOS]", " ", "  ", "\n", "\u3000", "x", "é", "ov"]
    return ["".join(generator.choice(parts) for _ in range(generator.randrange(1, 9))) for _ in range(50)]


def variant_json(base, steps, ignore_merges, added):
    out = copy.deepcopy(base)
    out["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps}
    out["model"]["ignore_merges"] = ignore_merges
    for token in added:
        entry = dict(id=base_size(base) + len(out["added_tokens"]) - len(SPECIAL), single_word=False, lstrip=False,
                     rstrip=False, normalized=False, special=False)
        entry.update(token)
        out["added_tokens"].append(entry)
    return out


def base_size(base):
    return len(base["model"]["vocab"])


def run(tokenizer_json, texts):
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(tokenizer_json))
    cases = []
    for text in texts:
        tokenizer.encode_special_tokens = False
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        tokenizer.encode_special_tokens = True
        plain = tokenizer.encode(text, add_special_tokens=False).ids
        cases.append([text, ids] if plain == ids else [text, ids, plain])
    return cases


def run_decode(tokenizer_json):
    """Random ids break characters apart in every way."""
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(tokenizer_json))
    generator = random.Random(5)
    cases = []
    for _ in range(80):
        ids = [generator.randrange(generator.choice([9, 265, 265, 265, 1024])) for _ in range(generator.randrange(1, 12))]
        cases.append([ids, tokenizer.decode(ids, skip_special_tokens=False), tokenizer.decode(ids)])
    return cases


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, required=True)
    out = parser.parse_args().out
    out.mkdir(exist_ok=True)
    base = train()
    texts = [t for t in strings() if not any(0xD800 <= ord(c) < 0xE000 for c in t)]
    groups = []
    for number, (name, (steps, ignore_merges, added)) in enumerate(variants().items()):
        chosen = texts if name == "pair" else texts[number::30]
        if added:
            chosen = added_strings()
        described = variant_json(base, steps, ignore_merges, added)
        groups.append({"name": name, "pre_tokenizer": described["pre_tokenizer"], "ignore_merges": ignore_merges,
                       "added_tokens": described["added_tokens"][len(SPECIAL):], "cases": run(described, chosen)})
    compact = dict(ensure_ascii=False, separators=(",", ":"))
    (out / "tokenizer.json").write_text(json.dumps(base, **compact) + "\n")
    (out / "cases.json").write_text(json.dumps({"groups": groups, "decode": run_decode(base)}, **compact) + "\n")
    print(len(texts), "strings,", sum(len(g["cases"]) for g in groups), "cases")


if __name__ == "__main__":
    main()

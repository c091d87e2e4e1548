"""Writes what Hugging Face tokenizers makes of more than 5,000 strings with three tokenizers.

    python make_tokenizer_wide_golden.py --out tokenizer/wide [--train]

texts.json is the list of strings, cut out of many scripts, emoji, code, white space, numbers and marks. For each tokenizer NAME.ids
has a line for each string: its ids, and after a | the ids with special tokens as plain text where those differ. NAME.decode.json holds
[ids, text with and text without special tokens], random ids that break characters and spell surrogates among them.
The tokenizers are the shipped one and two of their own, in NAME/tokenizer.json, trained by --train on the Markdown of this
repository: "nfc" (Qwen's normalizer and pattern) and "steps" (a Sequence of normalizers, splits and digits, and added tokens that
are found in normalized text).
classes.json says which characters the library's patterns take for a letter, a number and so on, of those that Unicode 14 knows:
for each class, and for "known", the alternating counts of characters outside and inside, from U+0000 on.
"""

import argparse
import json
import pathlib
import random
import unicodedata

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

import make_tokenizer_golden as small

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
SHIPPED = REPOSITORY / "deploy/models/arborist-tiny/target/tokenizer.json"

QWEN_PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
                r"|\s+(?!\S)|\s+")
STEP_PATTERN = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
                r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")

# Blocks of letters, marks, symbols; the characters of each that Unicode 14 knows are used. (1DF6..1DFF are marks newer than the
# tables of the normalizers in Hugging Face tokenizers, which take them for letters.)
BLOCKS = [(0x20, 0x7E), (0xA0, 0xFF), (0x100, 0x24F), (0x250, 0x2AF), (0x2B0, 0x2FF), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x52F),
          (0x531, 0x58F), (0x591, 0x5F4), (0x600, 0x6FF), (0x700, 0x74F), (0x780, 0x7BF), (0x900, 0x97F), (0x980, 0x9FF),
          (0xA00, 0xA7F), (0xB80, 0xBFF), (0xC00, 0xC7F), (0xD00, 0xD7F), (0xD80, 0xDFF), (0xE00, 0xE7F), (0xE80, 0xEFF),
          (0xF00, 0xFFF), (0x1000, 0x109F), (0x10A0, 0x10FF), (0x1100, 0x11FF), (0x1200, 0x137F), (0x13A0, 0x13FF), (0x1780, 0x17FF),
          (0x1800, 0x18AF), (0x1D00, 0x1DBF), (0x1DC0, 0x1DF5), (0x1E00, 0x1EFF), (0x1F00, 0x1FFF), (0x2000, 0x206F),
          (0x2070, 0x20CF), (0x20D0, 0x20F0), (0x2100, 0x214F), (0x2150, 0x218B), (0x2190, 0x23FF), (0x2460, 0x24FF), (0x2500, 0x27BF),
          (0x2C00, 0x2DFF), (0x2E80, 0x2FDF), (0x3000, 0x30FF), (0x3130, 0x33FF), (0x3400, 0x9FFF), (0xA000, 0xA4CF), (0xA640, 0xA69F),
          (0xA720, 0xA7CA), (0xAC00, 0xD7A3), (0xE000, 0xE0FF), (0xF900, 0xFAD9), (0xFB00, 0xFB4F), (0xFB50, 0xFDFF),
          (0xFE00, 0xFE6F), (0xFF00, 0xFFEF), (0x10000, 0x100FF), (0x10330, 0x1034F), (0x10400, 0x1044F), (0x11080, 0x110CF),
          (0x12000, 0x123FF), (0x13000, 0x1342F), (0x16F00, 0x16F9F), (0x1D100, 0x1D1E8), (0x1D400, 0x1D7FF), (0x1E900, 0x1E95F),
          (0x1F000, 0x1F2FF), (0x1F300, 0x1F64F), (0x1F680, 0x1F6FF), (0x1F900, 0x1F9FF), (0x20000, 0x2A6DF), (0x2F800, 0x2FA1D),
          (0xE0020, 0xE007F), (0xE0100, 0xE01EF)]

MARKS = "\u0300\u0301\u0302\u0303\u0308\u030a\u0323\u0327\u0328\u0338\u0345\u0653\u0654\u093c\u09be\u0bd7\u3099\u309a\u1161\u11a8"
BASES = "aeiouAEIOUnscyzdg\u00e4\u00ea\u01d7\u0391\u03c9\u0418\u0627\u0928\u09c7\u0b92\u304b\u30cf\u1100\uac00 1=<"
EMOJI = ["👩‍👩‍👧‍👦", "👍🏽", "🇩🇪", "🇯🇵🇨", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "❤️‍🔥", "☕️", "1️⃣", "😀", "🧑🏿‍🚀", "\u200d", "\ufe0f", "🏳️‍🌈", "🫠"]
SPACES = [" ", "  ", "    ", "\t", "\n", "\r\n", "\r", "\u00a0", "\u2003", "\u3000", "\u200b", "\u2028", "\u0085", "\x0b", "\x0c", "\u180e",
          "\ufeff", "\u202f"]
CODE = ["if (a[i] != b->c) {", "return x;", "}\n\n\n", "\t\t", "        ", "#include <vector>\n", "std::vector<int32_t>&& v",
        "lambda x: x**2", "/* ... */", "0x1F600", "1e-9f", "$HOME/.bashrc", "SELECT * FROM t WHERE a='b';", "</div>", "&amp;",
        "camelCaseWord", "snake_case_word", "SCREAMING_CASE", "C:\\\\path\\n", "'\\u00e9'", "``code``", "=>", "!==", "::", "...", "--"]
NUMBERS = ["0", "7", "42", "123", "1234", "12345", "1234567890", "3.14159", "1,000,000", "-1e+10", "0b1010", "½", "²³", "Ⅷ", "①②", "٣٤٥",
           "१२३", "๑๒", "𝟘𝟙", "五十", "१a2", "007"]
BROKEN = ["\ufffd", "\ufffd\ufffd", "a\ufffdb", "\ufffe", "\uffff", "\U0010ffff", "\x00", "\x1b[0m", "\ue000", "\ud7ff"]
ADDED = ["<tool>", "</tool>", "Résumé", "<|left|>", "<|right|>"]


def known(first, last):
    return [chr(c) for c in range(first, last + 1) if unicodedata.category(chr(c)) not in ("Cn", "Cs")]


def documents():
    paths = sorted(p for p in REPOSITORY.rglob("*.md") if "build" not in p.parts and not any(x.startswith(".") for x in p.parts))
    return [p.read_text() for p in paths]


def random_strings(generator, words):
    """Endless kinds of strings in turn; most are short, so that a failure is easy to read."""
    blocks = [known(*block) for block in BLOCKS]
    everything = [c for block in blocks for c in block]

    def some(source, most):
        return [generator.choice(source) for _ in range(generator.randrange(1, most))]

    while True:
        block = generator.choice(blocks)
        yield "".join(some(block, 9))
        yield " ".join("".join(some(block, 5)) for _ in range(generator.randrange(1, 4)))
        yield "".join(some(everything, 7))
        yield "".join(generator.choice(BASES) + "".join(some(MARKS, 4)) for _ in range(generator.randrange(1, 4)))
        yield "".join(some(EMOJI + ["a", " ", "!"], 4))
        yield "".join(some(SPACES, 6)) + generator.choice(["", "x", "é", "漢", "😀", "7"]) + "".join(some(SPACES, 4))
        yield generator.choice(["", " ", "\n"]).join(some(CODE, 4))
        yield generator.choice(["", " ", ",", "a", "%"]).join(some(NUMBERS, 5))
        yield "".join(some(words, 8))
        yield "".join(some(words, 4)) + generator.choice(small.SPECIAL + ADDED) + "".join(some(words + SPACES, 3))
        yield "".join(some(small.SPECIAL + ADDED + ["<", "|", "[", " ", "tool", "R\u0301", "e\u0301", "Re\u0301sume\u0301"], 5))
        yield "".join(some(BROKEN + words + SPACES, 4))
        word = "".join(some(generator.choice(blocks), 3))
        yield word * generator.randrange(1, 9)
        yield generator.choice(["'", "’", " '", "x'"]) + generator.choice(["s", "S", "ſ", "t", "re", "VE", "LL", "d", "x", "İ", "ı", "K"])
        yield "".join(generator.choice([str.upper, str.lower, str.title, str])(w) for w in some(words, 4))


def strings(count):
    generator = random.Random(31)
    words = [w for text in small.SENTENCES for w in (small.unescape(text) + " ").replace(" ", " \0").split("\0") if w]
    out = dict.fromkeys(small.strings())
    for text in ["x" * 800, "é" * 200, "漢" * 100, " " * 500, "\n" * 200, "👍" * 80, "e\u0301" * 150, "a\u0323\u0301" * 80,
                 "\u0301" * 60, "9" * 300, "ab" * 200, "-" * 400, " \n" * 100, "\u1100\u1161\u11a8" * 40, "İ" * 40]:
        out[text] = None
    for text in random_strings(generator, words):
        if len(out) >= count:
            return list(out)
        out[text] = None


def with_added(tokenizer):
    """Tokens that are not special: found in the raw text or, `normalized`, in the normalized text."""
    added = [tokenizers.AddedToken("<tool>", normalized=False), tokenizers.AddedToken("</tool>", normalized=True),
             tokenizers.AddedToken("Résumé", normalized=True), tokenizers.AddedToken("<|left|>", lstrip=True, normalized=False),
             tokenizers.AddedToken("<|right|>", rstrip=True, normalized=True)]
    tokenizer.add_tokens(added)


def train(name, size):
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    if name == "nfc":
        tokenizer.normalizer = normalizers.NFC()
        steps = [pre_tokenizers.Split(Regex(QWEN_PATTERN), "isolated")]
    else:
        tokenizer.normalizer = normalizers.Sequence([
            normalizers.Replace("``", '"'), normalizers.Replace(Regex(r"[\u200b\ufeff]+"), ""), normalizers.NFKC(),
            normalizers.Lowercase(), normalizers.Strip(left=False, right=True), normalizers.Prepend("_")])
        steps = [pre_tokenizers.Split(Regex(r"\p{N}{1,3}"), "isolated"), pre_tokenizers.Digits(individual_digits=False),
                 pre_tokenizers.Split(Regex("[一-龥\u0800-\u4e00가-\ud7ff]+"), "isolated"),
                 pre_tokenizers.Split(Regex(STEP_PATTERN), "isolated")]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=size, special_tokens=small.SPECIAL, show_progress=False,
                                             initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(documents() + [small.unescape(s) for s in small.SENTENCES] * 4, trainer)
    with_added(tokenizer)
    return tokenizer


def id_lines(tokenizer, texts):
    lines = []
    for text in texts:
        tokenizer.encode_special_tokens = False
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        tokenizer.encode_special_tokens = True
        plain = tokenizer.encode(text, add_special_tokens=False).ids
        line = " ".join(map(str, ids))
        lines.append(line if plain == ids else line + "|" + " ".join(map(str, plain)))
    return lines


def decode_cases(tokenizer):
    """Random ids, half of them single bytes: broken characters, overlong forms and lone surrogates (ED A0..BF 80..BF).

    Added tokens that are not special are left out: the library shows them normalized and reads é as the byte E9, we show
    their content.
    """
    generator = random.Random(8)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    order = sorted(alphabet, key=lambda c: (ord(c) >= 256, ord(c)))  # the byte of a character: its own code, or the n-th odd one
    odd = iter(b for b in range(256) if chr(b) not in alphabet)
    byte_id = {ord(c) if ord(c) < 256 else next(odd): tokenizer.token_to_id(c) for c in order}
    pieces = [[0xED, 0xA0, 0x80], [0xED, 0xBF, 0xBF], [0xF0, 0x9F, 0x98, 0x80], [0xE6, 0xBC, 0xA2], [0xC3], [0xC0, 0xAF], [0xF5], [0x80]]
    cases = []
    for _ in range(150):
        ids = []
        for _ in range(generator.randrange(1, 7)):
            piece = generator.choice(pieces)
            cut = piece[generator.randrange(len(piece)):] if generator.random() < 0.2 else piece
            ids += [byte_id[b] for b in cut] if generator.random() < 0.6 else [generator.randrange(tokenizer.get_vocab_size(with_added_tokens=False))]
        cases.append([ids, tokenizer.decode(ids, skip_special_tokens=False), tokenizer.decode(ids)])
    return cases


def runs(flags):
    """Counts of equal flags in a row; the first is of False."""
    out, at = [0], False
    for flag in flags:
        if flag != at:
            out.append(0)
            at = flag
        out[-1] += 1
    return out


def classes():
    """In a string of known characters, each with an `a` on both sides, those inside a class are one piece with their neighbours."""
    characters = [chr(c) if unicodedata.category(chr(c)) not in ("Cn", "Cs") else None for c in range(0x110000)]
    out = {"known": runs(c is not None for c in characters)}
    for name in [r"\p{L}", r"\p{M}", r"\p{N}", r"\p{P}", r"\p{S}", r"\p{Han}", r"\p{Greek}", r"\s", r"\w", r"[\w]", r"\d"]:
        splitter = pre_tokenizers.Split(Regex("(?:a|" + name + ")+"), "isolated")
        out[name] = runs(c is not None and (len(splitter.pre_tokenize_str("a" + c + "a")) == 1 and (c != "a" or name in (r"\p{L}", r"\w", r"[\w]")))
                         for c in characters)
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--count", type=int, default=5100)
    parser.add_argument("--train", action="store_true", help="make the tokenizers anew from today's Markdown")
    args = parser.parse_args()
    args.out.mkdir(exist_ok=True)
    compact = dict(ensure_ascii=False, separators=(",", ":"))
    for name, size in [("nfc", 1536), ("steps", 1280)]:
        if args.train:
            (args.out / name).mkdir(exist_ok=True)
            described = json.loads(train(name, size).to_str())
            (args.out / name / "tokenizer.json").write_text(json.dumps(described, **compact) + "\n")
    texts = strings(args.count)
    (args.out / "texts.json").write_text(json.dumps({"texts": texts}, **compact) + "\n")
    for name in ["shipped", "nfc", "steps"]:
        path = SHIPPED if name == "shipped" else args.out / name / "tokenizer.json"
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
        (args.out / (name + ".ids")).write_text("\n".join(id_lines(tokenizer, texts)) + "\n")
        (args.out / (name + ".decode.json")).write_text(json.dumps({"decode": decode_cases(tokenizer)}, **compact) + "\n")
    (args.out / "classes.json").write_text(json.dumps(classes(), **compact) + "\n")
    print(len(texts), "strings")


if __name__ == "__main__":
    main()

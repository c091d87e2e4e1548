"""Tokenizers and generation defaults with which no coordinator starts: status 1, one line. FOLDER is a damaged copy of the shipped
target's."""
import json

import damage as d
from checkpoint_cases import bad

TOKENIZER, OWN, DEFAULTS, CONFIG = "tokenizer.json", "tokenizer_config.json", "generation_config.json", "config.json"
NAMES = {TOKENIZER, OWN, DEFAULTS, CONFIG}


def tokenizer(name, says, **values):
    return bad(name, d.fields(TOKENIZER, **values), says)


def edited(name, edit, says):
    return bad(name, d.edited(TOKENIZER, edit), says)


def defaults(name, says, **values):
    return bad(name, d.fields(DEFAULTS, **values), says)


def step(kind, **fields):
    return {"type": kind, **fields}


TOKENIZERS = [
    bad("no_tokenizer", d.without(TOKENIZER),
        "FOLDER/tokenizer.json: cannot be opened: No such file or directory"),
    bad("an_empty_tokenizer", d.content(TOKENIZER, ""),
        "FOLDER/tokenizer.json: not a JSON object: Unexpected end of string. Expected a value."),
    bad("a_tokenizer_that_is_cut", d.cut(TOKENIZER, 100000),
        "FOLDER/tokenizer.json: not a JSON object: Unexpected end of string. Expected a value or ] within an array."),
    bad("a_tokenizer_of_rubbish", d.content(TOKENIZER, bytes(range(256))),
        "FOLDER/tokenizer.json: not a JSON object: Encountered non UTF-8 code points. Near: \\x00\\x01\\x02\\x03\\x04\\x05\\x06\\x07\\x08"),
    bad("a_tokenizer_that_is_a_list", d.content(TOKENIZER, "[]"),
        "FOLDER/tokenizer.json: not a JSON object: Root element must be a message."),
    bad("a_tokenizer_without_anything", d.content(TOKENIZER, "{}"),
        "FOLDER/tokenizer.json: pre_tokenizer=missing, expected ByteLevel as its last step"),
    bad("a_tokenizer_that_is_a_folder", d.folder_named(TOKENIZER),
        "FOLDER/tokenizer.json: not a regular file"),
    bad("a_tokenizer_that_is_a_pipe", d.pipe(TOKENIZER),
        "FOLDER/tokenizer.json: not a regular file"),
    bad("a_tokenizer_linked_outside", d.link(TOKENIZER, "/etc/passwd"),
        "FOLDER/tokenizer.json: is a symbolic link to /etc/passwd, expected a file inside FOLDER"),
    tokenizer("no_model",
              "FOLDER/tokenizer.json: model=missing, expected an object", model=...),
    tokenizer("a_model_of_another_kind",
              'FOLDER/tokenizer.json: model: type="Unigram", expected BPE', model__type="Unigram"),
    tokenizer("a_byte_fallback",
              "FOLDER/tokenizer.json: model: byte_fallback=true, expected false (byte-level BPE needs none)", model__byte_fallback=True),
    tokenizer("a_dropout",
              "FOLDER/tokenizer.json: model: dropout=0.1, expected null", model__dropout=0.1),
    tokenizer("an_unknown_token",
              'FOLDER/tokenizer.json: model: unk_token="\\u003cunk\\u003e", expected null', model__unk_token="<unk>"),
    tokenizer("a_vocabulary_that_is_a_list",
              'FOLDER/tokenizer.json: model: vocab=["a"], expected an object of token to id', model__vocab=["a"]),
    tokenizer("a_vocabulary_of_nothing",
              "FOLDER/tokenizer.json: model.vocab lacks the byte 0x00, expected every byte that text can contain", model__vocab={}),
    tokenizer("an_id_of_text",
              'FOLDER/tokenizer.json: model: vocab: a="7", expected an integer in [0, 16777215]', model__vocab__a="7"),
    tokenizer("a_negative_id",
              "FOLDER/tokenizer.json: model: vocab: a=-1, expected an integer in [0, 16777215]", model__vocab__a=-1),
    tokenizer("an_id_that_is_no_integer",
              "FOLDER/tokenizer.json: model: vocab: a=1.5, expected an integer in [0, 16777215]", model__vocab__a=1.5),
    tokenizer("an_id_beyond_24_bits",
              "FOLDER/tokenizer.json: model: vocab: a=16777216, expected an integer in [0, 16777215]", model__vocab__a=2**24),
    edited("an_id_twice", lambda o: o["model"]["vocab"].update({"a": o["model"]["vocab"]["b"]}),
           'FOLDER/tokenizer.json: model.vocab: id 81 of "...'),
    edited("a_byte_that_no_token_has", lambda o: o["model"]["vocab"].pop("a") and None,
           "FOLDER/tokenizer.json: model.vocab lacks the byte 0x61, expected every byte that text can contain"),
    edited("a_character_that_is_no_byte", lambda o: o["model"]["vocab"].update({"\u4e2d": 5000}),
           'FOLDER/tokenizer.json: model.vocab: "中", expected characters of the byte-level alphabet'),
    tokenizer("merges_that_are_text",
              'FOLDER/tokenizer.json: model: merges="a b", expected a list', model__merges="a b"),
    edited("a_merge_of_one_part", lambda o: o["model"]["merges"].insert(0, "ab"),
           'FOLDER/tokenizer.json: model: merges[0]="ab", expected two token parts'),
    edited("a_merge_of_three_parts", lambda o: o["model"]["merges"].insert(0, ["a", "b", "c"]),
           'FOLDER/tokenizer.json: model: merges[0]=["a","b","c"], expected two token parts'),
    edited("a_merge_that_makes_no_token", lambda o: o["model"]["merges"].insert(0, ["\u0121", "\u0121"]),
           'FOLDER/tokenizer.json: model.merges[0] needs the token "\\x7f\\x7f", expected it in model.vocab'),
    tokenizer("added_tokens_that_are_text",
              'FOLDER/tokenizer.json: added_tokens="x", expected a list of objects', added_tokens="x"),
    tokenizer("an_added_token_without_text",
              'FOLDER/tokenizer.json: added_tokens[0]: content="", expected text that is not empty', added_tokens__0__content=""),
    tokenizer("an_added_token_without_an_id",
              "FOLDER/tokenizer.json: added_tokens[0]: id=missing, expected an integer", added_tokens__0__id=...),
    tokenizer("an_added_token_with_a_negative_id",
              "FOLDER/tokenizer.json: added_tokens[0]: id=-1, expected an integer in [0, 16777215]", added_tokens__0__id=-1),
    tokenizer("an_added_id_twice",
              "FOLDER/tokenizer.json: added_tokens: id 0 stands twice, expected once", added_tokens__1__id=0),
    tokenizer("an_added_token_for_whole_words",
              "FOLDER/tokenizer.json: added_tokens[0]: single_word=true, expected false", added_tokens__0__single_word=True),
    tokenizer("no_pre_tokenizer",
              "FOLDER/tokenizer.json: pre_tokenizer=null, expected ByteLevel as its last step", pre_tokenizer=None),
    tokenizer("a_pre_tokenizer_that_is_unknown",
              'FOLDER/tokenizer.json: pre_tokenizer: type="Metaspace", expected Sequence, Split, Digits or ByteLevel', pre_tokenizer=step("Metaspace")),
    tokenizer("a_pattern_that_is_none",
              "FOLDER/tokenizer.json: pre_tokenizer: pattern=(unclosed, expected a regular expression: missing closing parenthesis at byte 9", pre_tokenizer=step("Sequence", pretokenizers=[
        step("Split", pattern={"Regex": "(unclosed"}, behavior="Isolated"), step("ByteLevel", use_regex=False)])),
    tokenizer("a_pattern_of_nothing",
              'FOLDER/tokenizer.json: pre_tokenizer: pattern={"Regex":""}, expected a pattern that is not empty', pre_tokenizer=step("Split", pattern={"Regex": ""}, behavior="Isolated")),
    tokenizer("a_split_that_is_unknown",
              'FOLDER/tokenizer.json: pre_tokenizer: behavior="Sideways", expected Isolated, Removed, MergedWithPrevious, MergedWithNext or Contiguous', pre_tokenizer=step("Split", pattern={"Regex": "x"}, behavior="Sideways")),
    tokenizer("a_normalizer_that_is_unknown",
              'FOLDER/tokenizer.json: normalizer: type="BertNormalizer", expected Sequence, NFC, NFD, NFKC, NFKD, Lowercase, Replace, Prepend or Strip', normalizer=step("BertNormalizer")),
    tokenizer("a_decoder_that_is_unknown",
              'FOLDER/tokenizer.json: decoder: type="WordPiece", expected ByteLevel', decoder=step("WordPiece")),
    tokenizer("a_post_processor_that_is_unknown",
              'FOLDER/tokenizer.json: post_processor: type="RobertaProcessing", expected ByteLevel, TemplateProcessing or Sequence', post_processor=step("RobertaProcessing")),
    bad("a_first_token_that_is_not_there", d.fields(OWN, bos_token="[NONE]"),
        "FOLDER/tokenizer_config.json: bos_token=[NONE], expected one of added_tokens in tokenizer.json"),
    bad("a_first_token_of_a_number", d.fields(OWN, bos_token=7),
        "FOLDER/tokenizer_config.json: bos_token=7, expected a string"),
    bad("a_switch_that_is_text", d.fields(OWN, add_bos_token="yes"),
        'FOLDER/tokenizer_config.json: add_bos_token="yes", expected true or false'),
    bad("a_tokenizer_config_that_is_cut", d.cut(OWN, 30),
        "FOLDER/tokenizer_config.json: not a JSON object: Closing quote expected in string."),
    bad("a_tokenizer_config_that_is_a_pipe", d.pipe(OWN),
        "FOLDER/tokenizer_config.json: not a regular file"),
    bad("defaults_that_are_cut", d.cut(DEFAULTS, 20),
        "FOLDER/generation_config.json: not a JSON object: Unexpected end of string. Expected , or } after key:value pair. Near: 0"),
    bad("defaults_that_are_a_pipe", d.pipe(DEFAULTS),
        "FOLDER/generation_config.json: not a regular file"),
    defaults("an_end_id_of_text",
             'FOLDER/generation_config.json: eos_token_id="[EOS]", expected an integer', eos_token_id="[EOS]"),
    defaults("a_negative_end_id",
             "FOLDER/generation_config.json: eos_token_id=[1,-1], expected token ids", eos_token_id=[1, -1]),
    defaults("a_default_temperature_above_its_range",
             "FOLDER/generation_config.json: temperature=101, expected a number in [0, 100]", temperature=101),
    defaults("a_default_temperature_of_text",
             'FOLDER/generation_config.json: temperature="hot", expected a finite number', temperature="hot"),
    defaults("a_default_top_p_of_zero",
             "FOLDER/generation_config.json: top_p=0, expected a number in (0, 1]", top_p=0),
    defaults("a_default_top_p_above_one",
             "FOLDER/generation_config.json: top_p=1.5, expected a number in [0, 1]", top_p=1.5),
    defaults("a_default_top_k_below_zero",
             "FOLDER/generation_config.json: top_k=-1, expected an integer >= 0", top_k=-1),
    defaults("a_default_min_p_above_one",
             "FOLDER/generation_config.json: min_p=2, expected a number in [0, 1]", min_p=2),
    bad("a_default_that_is_no_number", d.content(DEFAULTS, '{"temperature": NaN}'),
        "FOLDER/generation_config.json: not a JSON object: Unexpected token. Near: NaN}"),
]

TABLE = [("coordinator", "target", "--tokenizer FOLDER --verifier unix:/x", TOKENIZERS)]

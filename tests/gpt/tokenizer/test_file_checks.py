"""tokenizer.json is checked on paper: what would take gigabytes or panic is refused, what models have loads."""

import base64
import copy
import json
import os
import struct

import numpy as np
import pytest
import tokenizers

from file_mutations import TEXT, charsmap, tokenizer_contents
from regard.gpt.tokenizer.file_checks import KINDS, LARGEST, MODELS, check_tokenizer, check_tokenizer_file, is_size
from regard.gpt.tokenizer.tokenizer import Tokenizer

CONTENTS = tokenizer_contents()
PART = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}


def file_of(tmp_path, content):
    path = tmp_path / "tokenizer.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.mark.parametrize("name", CONTENTS)
def test_tokenizers_of_every_family_load_and_encode_as_the_library_does(name, tmp_path):
    from tokenizers import Tokenizer as Inner

    path = file_of(tmp_path, CONTENTS[name])
    expected = Inner.from_file(str(path)).encode(TEXT, add_special_tokens=False).ids
    assert Tokenizer.load(path).encode(TEXT) == expected


def test_old_files_that_do_not_name_their_model_load(tmp_path):
    content = copy.deepcopy(CONTENTS["bytes"])
    del content["model"]["type"]
    content["model"]["merges"] = [" ".join(merge) for merge in content["model"]["merges"]]
    assert Tokenizer.load(file_of(tmp_path, content)).encode(TEXT) == Tokenizer.load(
        file_of(tmp_path, CONTENTS["bytes"])
    ).encode(TEXT)


def with_model(**changes):
    return {**CONTENTS["llama"], "model": {**CONTENTS["llama"]["model"], **changes}}


def many(part, field, count):
    return {"type": "Sequence", field: [part] * count}


def nested(depth):
    part = {"type": "NFC"}
    for _ in range(depth):
        part = {"type": "Sequence", "normalizers": [part]}
    return part


DOUBLED = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
SPECIAL = {"SpecialToken": {"id": "[X]", "type_id": 0}}
REFUSED = {
    "an id near 2³¹": (
        with_model(vocab={"<unk>": 0, "a": 2**31 - 5}, merges=[]),
        r"the id of a is 2147483643; ids of 3",
    ),
    "an id that is none": (with_model(vocab={"<unk>": 0, "a": 1.0}, merges=[]), r"the id of a is 1\.0; ids"),
    "an added id": (
        {**CONTENTS["llama"], "added_tokens": [{"id": 2**32 - 1, "content": "x", **PART}]},
        "the id of x is 4294",
    ),
    "an added token with a field that would be printed": (
        {**CONTENTS["llama"], "added_tokens": [{"id": 0, "content": "<unk>", "\x1b[2J": 1, **PART}]},
        r"a field of an added token is '\\x1b\[2J'; these are known: id, content, single_word",
    ),
    "an added token without a text": (
        {**CONTENTS["llama"], "added_tokens": [{"id": 3, "content": "", **PART}]},
        "content of",
    ),
    "a prefix that merges do not have": (with_model(continuing_subword_prefix="éé"), "a merge is .*must begin with éé"),
    "no model": ({"version": "1.0"}, "model is None; it must be a JSON object"),
    "another model": (with_model(type="Magic"), "the type of the model is 'Magic'; these are known: BPE"),
    "a vocabulary of another model": (with_model(type="Unigram"), "a Unigram model has another"),
    "an unknown token beyond the vocabulary": (
        {**CONTENTS["unigram"], "model": {**CONTENTS["unigram"]["model"], "unk_id": 9}},
        "unk_id is 9; it must be below 9",
    ),
    "a part that is unknown": (
        {**CONTENTS["llama"], "normalizer": {"type": "Magic"}},
        "the type of a normalizer is 'Magic'",
    ),
    "a part that is no object": (
        {**CONTENTS["llama"], "normalizer": [1]},
        r"normalizer is \[1\]; it must be a JSON object",
    ),
    "a prefix of nothing": (
        {**CONTENTS["llama"], "normalizer": {"type": "Prepend", "prepend": ""}},
        "prepend of normalizer",
    ),
    "chunks of no length": (
        {**CONTENTS["llama"], "pre_tokenizer": {"type": "FixedLength", "length": 0}},
        "length of pre_tok",
    ),
    "a stop": (
        {**CONTENTS["llama"], "decoder": {"type": "Strip", "content": "a", "start": 0, "stop": 1}},
        "stop of decoder Strip is 1",
    ),
    "a charsmap": (
        {**CONTENTS["llama"], "normalizer": {"type": "Precompiled", "precompiled_charsmap": "/////////////w=="}},
        "precompiled_charsmap of normalizer",
    ),
    "a template of unknown tokens": (
        {
            **CONTENTS["bert"],
            "post_processor": {**CONTENTS["bert"]["post_processor"], "single": [SPECIAL]},
        },
        r"a SpecialToken of TemplateProcessing is '\[X\]'; special_tokens must have it",
    ),
    "a text that doubles thirty times": (
        {**CONTENTS["llama"], "normalizer": many(DOUBLED, "normalizers", 30)},
        "normalizer Replace is one part too many: together they may make a text at most 64 times longer",
    ),
    "a hundred parts": (
        {**CONTENTS["llama"], "pre_tokenizer": many({"type": "Whitespace"}, "pretokenizers", 100)},
        "more than 64 parts",
    ),
    "parts nine deep": ({**CONTENTS["llama"], "normalizer": nested(9)}, "nested more than 8 deep"),
    "lists ten thousand deep": ('{"model": ' + "[" * 10_000 + "]" * 10_000 + "}", "it is nested too deeply"),
    "padding to a terabyte": ({**CONTENTS["llama"], "padding": {"strategy": {"Fixed": 2**40}}}, "padding is"),
    "a stride beyond the length": (
        {**CONTENTS["llama"], "truncation": {"max_length": 1, "stride": 5}},
        "it must have a max_length, and a stride below it",
    ),
    "a list": ("[]", "it must be a JSON object, but is a list"),
    "a model twice": ('{"model": 1, "model": 2}', "model is there twice"),
    "merges of unknown tokens": (
        with_model(merges=[["q", "q"]]),
        r"a merge is \['q', 'q'\]; the vocabulary does not have",
    ),
    "merges of tokens that make another": (
        with_model(merges=["h a"]),
        "a merge is 'h a'; the vocabulary does not have",
    ),
    "merges of unknown parts": (with_model(merges=[["", "he"]]), "that can be read: .*Token `` out of vocabulary"),
    "more added tokens than any model has": (
        {**CONTENTS["llama"], "added_tokens": [{"id": i, "content": str(i), **PART} for i in range(25_001)]},
        "the number of added_tokens is 25001; it must be at most 25,000",
    ),
    "added tokens that are a book": (
        {**CONTENTS["llama"], "added_tokens": [{"id": i, "content": "x" * 9000 + str(i), **PART} for i in range(60)]},
        "the length of all added_tokens is 540110; it must be at most 500,000 characters",
    ),
    "pieces that are books": (
        {**CONTENTS["unigram"], "model": {**CONTENTS["unigram"]["model"], "vocab": [["x" * 9000, 0.0]] * 6}},
        "the length of all tokens is 54000; so many of them may have at most 50,096 characters",
    ),
    "a key that changes the title": (
        {**CONTENTS["llama"], "normalizer": {"type": "\x1b]0;t\x07"}},
        r"is '\\x1b\]0;t\\x07'",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_hostile_file_is_refused_by_name(name, tmp_path, capfd):
    content, message = REFUSED[name]
    path = file_of(tmp_path, content)
    with pytest.raises(ValueError, match=message) as error:
        Tokenizer.load(path)
    assert str(error.value).startswith(f"{path} is no tokenizer that can be read: ")
    assert len(str(error.value)) < 500
    assert str(error.value).isprintable()
    assert capfd.readouterr() == ("", "")


def test_a_sparse_file_of_ten_gigabytes_is_not_read(tmp_path):
    path = file_of(tmp_path, CONTENTS["llama"])
    os.truncate(path, 10 << 30)
    with pytest.raises(ValueError, match=rf"the file has 10,737,418,240 bytes, more than the {LARGEST:,} that any"):
        check_tokenizer_file(path)


def test_what_still_panics_with_some_texts_is_an_error_and_says_nothing(tmp_path, capfd):
    pattern = {"type": "Split", "pattern": {"Regex": "(%?b?)*c|(%+)+$"}, "behavior": "Isolated", "invert": False}
    tokenizer = Tokenizer.load(file_of(tmp_path, {**CONTENTS["bytes"], "pre_tokenizer": pattern}))
    assert tokenizer.decode(tokenizer.encode("ab")) == "ab"
    with pytest.raises(ValueError, match="the tokenizer cannot encode this text: Onig: Regex search error"):
        tokenizer.encode("%" * 40 + "é")
    assert capfd.readouterr() == ("", "")


def test_a_tokenizer_that_panics_with_every_text_does_not_load(tmp_path, capfd):
    normalizer = {"type": "Replace", "pattern": {"Regex": "(?=e)"}, "content": "yy"}
    content = {**CONTENTS["bytes"], "normalizer": normalizer}
    try:
        Tokenizer.load(file_of(tmp_path, content)).encode(TEXT)
    except ValueError as error:
        assert "cannot" in str(error)  # noqa: PT017
    assert capfd.readouterr() == ("", "")


def test_a_text_that_a_tokenizer_does_not_know_is_an_error(tmp_path):
    content = {**CONTENTS["bert"], "model": {**CONTENTS["bert"]["model"], "unk_token": "[NONE]"}}
    with pytest.raises(ValueError, match="cannot encode this text: WordPiece error: Missing"):
        Tokenizer.load(file_of(tmp_path, content)).encode("猫")


def test_what_can_panic_is_told():
    plain, qwen = (check_tokenizer(json.dumps(CONTENTS[name]).encode()) for name in ("bytes", "qwen"))
    assert (plain.encoding_can_panic, plain.decoding_can_panic) == (False, False)
    assert (qwen.encoding_can_panic, qwen.decoding_can_panic) == (True, False)


def names_in(module):
    found = (getattr(module, name) for name in dir(module))
    kinds = {one.__name__ for one in found if isinstance(one, type) and one.__module__.startswith("tokenizers")}
    return kinds - {module.__name__.split(".")[1].rstrip("s").title().replace("_", ""), "Decoder", "PreTokenizer"}


@pytest.mark.parametrize(
    ("field", "module"),
    [
        ("normalizer", tokenizers.normalizers),
        ("pre_tokenizer", tokenizers.pre_tokenizers),
        ("post_processor", tokenizers.processors),
        ("decoder", tokenizers.decoders),
    ],
)
def test_every_part_of_the_library_is_known(field, module):
    bases = {"Normalizer", "PreTokenizer", "PostProcessor", "Decoder", "DecodeStream"}
    assert names_in(module) - bases <= set(KINDS[field])


def test_every_model_of_the_library_is_known():
    assert names_in(tokenizers.models) - {"Model"} <= set(MODELS)


REPLACE, SPLIT = KINDS["normalizer"]["Replace"]["pattern"], KINDS["pre_tokenizer"]["Split"]["pattern"]


@pytest.mark.parametrize("pattern", ["x*", "", "a|", "(a?)(b?)", r"\p{L}*", "(", "(?=a)*"])
def test_a_pattern_that_matches_nothing_is_not_replaced(pattern):
    assert not REPLACE({"Regex": pattern})


@pytest.mark.parametrize("pattern", [" {2,}", r"\s+", r"[^\p{L}\p{N}]", "``|''", r"\x{2014}"])
def test_patterns_of_models_are_replaced(pattern):
    assert REPLACE({"Regex": pattern})


@pytest.mark.parametrize("pattern", [r"\p{N}{1,3}", "", "a{1000}", r"\x{20AC}+"])
def test_patterns_that_split(pattern):
    assert SPLIT({"Regex": pattern})


@pytest.mark.parametrize("pattern", ["((a{100}){100}){100}", "a{1001}", "(a{,50}){50}", "x" * 2001])
def test_repeats_that_take_for_ever_are_refused(pattern):
    assert not SPLIT({"Regex": pattern})


@pytest.mark.parametrize("pattern", [None, "x", {}, {"String": "a", "Regex": "a"}, {"Glob": "a"}, {"Regex": 5}])
def test_what_is_no_pattern_is_refused(pattern):
    assert not SPLIT(pattern)
    assert not REPLACE(pattern)


CHARSMAP = KINDS["normalizer"]["Precompiled"]["precompiled_charsmap"]


def test_a_table_of_replacements_is_known():
    assert CHARSMAP(charsmap())
    inner = tokenizers.normalizers.Precompiled(base64.b64decode(charsmap()))
    assert inner.normalize_str("cab") == "cbb"


def changed_charsmap(unit, value):
    raw = bytearray(base64.b64decode(charsmap()))
    raw[4 + 4 * unit : 8 + 4 * unit] = struct.pack("<I", value)
    return base64.b64encode(bytes(raw)).decode()


@pytest.mark.parametrize(
    ("unit", "value"),
    [
        (0, (1 << 21) << 10),
        (353, 97 | 256 | (1 << 20) << 10),
        (400, (1 << 31) | 7),
        (400, (1 << 31) | 1),
        (399, 9 << 20),
    ],
)
def test_a_table_with_a_step_out_of_itself_is_refused(unit, value):
    assert not CHARSMAP(changed_charsmap(unit, value))


@pytest.mark.parametrize(
    "text", [5, "AAAA", "????", "", "/////w==", base64.b64encode(b"\4\0\0\0" * 2 + b"\xff").decode()]
)
def test_what_is_no_table_is_refused(text):
    assert not CHARSMAP(text)


def test_a_table_that_passes_never_panics():
    rng = np.random.default_rng(7)
    passed = 0
    for _ in range(300):
        unit, value = int(rng.integers(512)), int(rng.integers(1 << 32)) >> int(rng.integers(32))
        text = changed_charsmap(unit, value)
        if CHARSMAP(text):
            passed += 1
            inner = tokenizers.normalizers.Precompiled(base64.b64decode(text))
            for one in ("cab", "naïve 猫", "".join(map(chr, range(1, 256)))):
                inner.normalize_str(one)
    assert passed > 30


@pytest.mark.parametrize("value", [-1, True, 1.0, None, 1 << 25, "3"])
def test_what_is_no_size_is_refused(value):
    assert not is_size(value)

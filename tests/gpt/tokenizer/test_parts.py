"""The table of parts knows every part that the library has, and what makes it panic."""

import base64
import struct

import numpy as np
import pytest
import tokenizers

from file_mutations import charsmap
from regard.gpt.tokenizer.parts import KINDS, MODELS, is_size


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

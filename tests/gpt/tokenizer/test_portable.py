"""Tokenizers for the page: what it cannot run exactly is refused by name. What it can is compared in
tests/show/page/test_model_in_node.py."""

import pytest
import tokenizers as hf

import regard
from regard.gpt.tokenizer.portable import _javascript, portable_tokenizer


def bpe(pre_tokenizer=None, normalizer=None, decoder=None, **options):
    inner = hf.Tokenizer(hf.models.BPE(**options))
    inner.pre_tokenizer = pre_tokenizer or hf.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoder or hf.decoders.ByteLevel()
    if normalizer:
        inner.normalizer = normalizer
    alphabet = hf.pre_tokenizers.ByteLevel.alphabet()
    inner.train_from_iterator(["ab"], hf.trainers.BpeTrainer(initial_alphabet=alphabet, show_progress=False))
    return regard.Tokenizer(inner)


LEVEL = hf.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
SEQUENCE = hf.pre_tokenizers.Sequence


def split(pattern, behavior="isolated"):
    return SEQUENCE([hf.pre_tokenizers.Split(hf.Regex(pattern), behavior), LEVEL])


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"normalizer": hf.normalizers.Lowercase()}, "the normalizer Lowercase"),
        ({"pre_tokenizer": hf.pre_tokenizers.Metaspace()}, "the pre-tokenizer Metaspace without ByteLevel after it"),
        ({"pre_tokenizer": SEQUENCE([hf.pre_tokenizers.Digits(), LEVEL])}, "the pre-tokenizer Digits"),
        ({"pre_tokenizer": split("a", "removed")}, "the pre-tokenizer Split with behavior=Removed"),
        ({"pre_tokenizer": split(r"a++")}, r"the pattern 'a\+\+', with '\+'"),
        ({"pre_tokenizer": split(r"\h")}, r"the pattern '\\\\h', with '\\\\h'"),
        ({"pre_tokenizer": split(r"^a")}, r"the pattern '\^a', with '\^'"),
        ({"pre_tokenizer": split(r"\p{Greek}")}, r"the pattern '\\\\p\{Greek\}', with"),
        ({"pre_tokenizer": split(r"[a[bc]]")}, r"the pattern '\[a\[bc\]\]', with '\['"),
        ({"decoder": hf.decoders.WordPiece()}, "the decoder WordPiece"),
        ({"dropout": 0.1}, "a BPE model with dropout=0.1"),
    ],
)
def test_a_part_that_the_page_does_not_know_is_refused_by_name(options, what):
    with pytest.raises(ValueError, match=f"this tokenizer has {what}.*, which the page cannot run; it runs byte-level"):
        portable_tokenizer(bpe(**options))


def test_other_models_are_refused_by_name():
    inner = hf.Tokenizer(hf.models.WordLevel({"a": 0}, unk_token="a"))
    with pytest.raises(ValueError, match="this tokenizer has a WordLevel model"):
        portable_tokenizer(regard.Tokenizer(inner))


def test_spaces_letters_of_either_case_and_classes_are_written_as_javascript_has_them():
    assert (
        _javascript(r"(?i:'s|[K])[^\s\p{L}]{1,3}-\-")
        == r"(?:'[sSſ]|[kK" + "\u212a" + r"])[^\p{White_Space}\p{L}]{1,3}--"
    )

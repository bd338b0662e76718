"""Patterns: which match an empty text, how many characters they match, and which take for ever."""

import pytest
import tokenizers

from gpt.tokenizer.families import BLOOM, CLIP, DEEPSEEK, GPT4O, LLAMA3
from regard.gpt.tokenizer.patterns import is_pattern, is_replaced_pattern, least_width, try_patterns

SAMPLES = ("", "a", "ab [x]", "e e", " \n", "[a]]", "aab猫")


def inserts(pattern):
    """Does a replacement put something where nothing was, in any of the samples?"""
    normalizer = tokenizers.normalizers.Replace(tokenizers.Regex(pattern), "☂")
    return any(
        len(normalizer.normalize_str(one).replace("☂", "")) == len(one) < len(normalizer.normalize_str(one))
        for one in SAMPLES
    )


EMPTY = [
    "(?=e)",
    "(?<=a)",
    r"\b",
    "^",
    "$",
    "a*",
    "a|",
    "(a?)(b?)",
    "[a[b]]*",
    "[[:space:]]*",
    "[a&&b]*",
    r"\p{L}?",
    "(",
]


@pytest.mark.parametrize("pattern", [*EMPTY, r"e\K", r"\G", r"\h*", r"\X?"])
def test_a_pattern_that_can_match_nothing_is_not_replaced(pattern):
    assert least_width({"Regex": pattern}) == 0
    assert not is_replaced_pattern({"Regex": pattern})


@pytest.mark.parametrize("pattern", EMPTY[:10])
def test_such_patterns_put_something_where_nothing_was(pattern):
    assert inserts(pattern)


@pytest.mark.parametrize(
    ("pattern", "width"),
    [
        (" {2,}", 2), (r"\s+", 1), (r"[^\p{L}\p{N}]", 1), ("``|''", 2), (r"\x{2014}", 1), (r"^▁+$", 1), (r" +▁", 2),
        (r"\s{2,}|[\n\r\t]", 1), (r"(?<=a)bc(?=d)", 2), (r"[\[\]]+", 1), (r"a\[b", 3), ("[]a]", 1),
    ],
)  # fmt: skip
def test_patterns_of_models_are_replaced_and_their_width_is_known(pattern, width):
    assert least_width({"Regex": pattern}) == width
    assert is_replaced_pattern({"Regex": pattern})
    assert not inserts(pattern)


def test_a_text_is_as_wide_as_it_is():
    assert least_width({"String": "猫 a"}) == 3
    assert not is_replaced_pattern({"String": ""})
    assert is_pattern({"String": ""})


def test_patterns_of_models_pass_the_trial():
    try_patterns((LLAMA3, GPT4O, BLOOM, CLIP, *DEEPSEEK))


def test_a_pattern_that_searches_for_ever_is_found_a_letter_at_a_time():
    with pytest.raises(ValueError, match=r"the patterns take more than 0\.25 seconds to read \d\d letters"):
        try_patterns([LLAMA3, r"(?:[a-z ]|[a-z ]){22}[A-Z]|."])


@pytest.mark.parametrize("pattern", [r"q(?:.|.){21}\z|.", r"(?:Q|Q){22}Z|.", r"(?:[é-é]|é){21}x|."])
def test_a_pattern_that_is_slow_with_its_own_letters_alone_is_found(pattern):
    with pytest.raises(ValueError, match=r"the patterns take more than 0\.25 seconds"):
        try_patterns([LLAMA3, pattern])

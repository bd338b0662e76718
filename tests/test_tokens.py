"""Tokens as people read them: one line each, told apart, found by name."""

import pytest

from regard.tokens import TextTokens, printable


def test_every_label_is_different():
    tokens = TextTokens(["the", " cat", " and", " the", " cat", "nip", " in", " the", " cat", "nip"])
    assert tokens.labels == ["the@0", "cat@1", "and", "the@3", "cat@4", "##nip@5", "in", "the@7", "cat@8", "##nip@9"]
    assert tokens.words == [0, 1, 2, 3, 4, 4, 5, 6, 7, 7]


def test_punctuation_does_not_continue_a_word():
    assert TextTokens(["well", "-", "known", ",", " 2", "5"]).names == ["well", "-", "known", ",", "2", "##5"]


def test_whole_words_can_be_told():
    assert TextTokens(["cat", "nip"], continues=[False, False]).labels == ["cat", "nip"]
    with pytest.raises(ValueError, match="2 tokens need as many values of continues; these are 1"):
        TextTokens(["cat", "nip"], continues=[False])


def test_a_token_is_found_by_label_name_or_text():
    tokens = TextTokens(["The", " cat", " saw", " the", " cat", "nip", "\n"])
    assert [tokens.find(name) for name in ("The", "the", "cat@4", "##nip", "nip", " saw", "⏎")] == [0, 3, 4, 5, 5, 2, 6]


def test_a_name_that_is_ambiguous_or_missing_says_what_there_is():
    tokens = TextTokens(["a", " b", " b", " b"])
    with pytest.raises(ValueError, match=r"'b' occurs 3 times; choose one: b@1, b@2 or b@3"):
        tokens.find("b")
    with pytest.raises(ValueError, match=r"no token is called 'dog'; this text has a, b@1, b@2, b@3"):
        tokens.find("dog")


def test_nothing_invisible_or_dangerous_is_printed():
    assert [printable(piece) for piece in ("\n\n", " ", "\t", "\x1b[31m", "", "‮")] == [
        *("⏎⏎", "␣", "⇥", r"\x1b[31m", "∅", r"\u202e")
    ]


def test_tokens_compare_by_text():
    assert TextTokens(["a", " b"]) == ["a", " b"]
    assert TextTokens(["a", " b"]) == TextTokens(["a", " b"]) != TextTokens(["a", "b"])
    assert list(TextTokens(["a", " b"])) == ["a", " b"]

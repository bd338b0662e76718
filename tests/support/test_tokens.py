"""Tokens as people read them: one line each, told apart, found by name."""

import pytest

from regard.support.tokens import TextTokens, printable_token


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
    assert [printable_token(piece) for piece in ("\n\n", " ", "\t", "\x1b[31m", "", "‮")] == [
        *("⏎⏎", "␣", "⇥", r"\x1b[31m", "∅", r"\u202e")
    ]


def test_tokens_compare_by_text():
    assert TextTokens(["a", " b"]) == ["a", " b"]
    assert TextTokens(["a", " b"]) == TextTokens(["a", " b"]) != TextTokens(["a", "b"])
    assert list(TextTokens(["a", " b"])) == ["a", " b"]


def test_a_word_of_several_tokens_is_found_as_a_whole():
    tokens = TextTokens(["Al", "ice", " met", " Al", "ice", " and", " cat", "nip"])
    assert (tokens.span("catnip"), tokens.span("Alice@3"), tokens.span("met")) == (
        range(6, 8),
        range(3, 5),
        range(2, 3),
    )
    with pytest.raises(ValueError, match=r"'Alice' occurs 2 times; choose one: Alice@0 or Alice@3"):
        tokens.span("Alice")
    with pytest.raises(ValueError, match=r"'catnip' is 2 tokens; choose one: cat or ##nip"):
        tokens.find("catnip")


def test_a_name_that_is_nearly_right_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match=r"no token is called 'Cat'; nearest is cat$"):
        TextTokens(["the", " cat", " sat", "nip"]).find("Cat")


def test_a_position_stands_for_a_token():
    assert TextTokens(["a", " b", " b"]).find("@2") == 2
    with pytest.raises(ValueError, match=r"no token is called '@3'"):
        TextTokens(["a", " b", " b"]).find("@3")


def test_padding_is_shown_and_never_found():
    tokens = TextTokens(["<s>", "<s>", "<s>", "cat"], padding=[True, True, False, False])
    assert tokens.labels == ["[pad]@0", "[pad]@1", "<s>", "cat"]
    assert tokens.find("<s>") == 2
    with pytest.raises(ValueError, match="the token at position 1 is padding, which is not asked for by name"):
        tokens.find("[pad]@1")
    with pytest.raises(ValueError, match=r"no token is called '\[pad\]'; this text has <s>, cat"):
        tokens.find("[pad]")
    assert TextTokens(["a", "b"], padding=[True, False]).continues == (False, False)


def test_a_token_spelled_as_the_label_of_another_is_told_apart():
    labels = TextTokens(["b", " b", " b@1"]).labels
    assert len(set(labels)) == 3


def test_letters_of_scripts_without_spaces_do_not_continue_a_word():
    assert TextTokens(["黑", "猫", "nip", " हि", "न्दी", "e", "\u0301"]).continues == (
        *(False, False, False, False, True, True, True),
    )


def test_marks_explain_only_what_occurs():
    assert TextTokens(["The", " cat"]).marks() == []
    tokens = TextTokens(["x", "y", "\n", " a", " a"], padding=[True, False, False, False, False])
    assert tokens.marks() == [
        "[pad] is padding",
        "a@3 is at position 3, because a occurs several times",
        "⏎ is a line break",
    ]


def test_in_is_answered_by_text_name_label_or_word():
    tokens = TextTokens(["Al", "ice", " saw", " the", " cat", "\n", " the", "</s>"], padding=[False] * 7 + [True])
    for name in ("saw", " saw", "the", "the@3", "##ice", "Alice", "⏎", "\n", "[pad]", tokens[7]):
        assert name in tokens
    for name in ("sa", "saw@2", "the@4", "", 2, None):
        assert name not in tokens


def test_the_parts_of_an_emoji_are_one_word():
    tokens = TextTokens(["a", " 👩", "\u200d", "👩", "\u200d", "👧", " 👍", "🏽", "❤", "\ufe0f", "👩"])
    assert tokens.words == [0, 1, 1, 1, 1, 1, 2, 2, 3, 3, 4]
    assert tokens.span("👩‍👩‍👧") == range(1, 6)


def test_bytes_are_described_in_words_also_of_characters_that_cannot_be_seen():
    parts = {0: "猫:1", 1: "猫:2-3", 2: r"a\u200d:1", 3: r"\u200d:2-3"}
    tokens = TextTokens(["猫", "", "a\u200d", ""], parts=parts)
    assert tokens.descriptions == {
        0: "byte 1 of 3 of 猫",
        1: "bytes 2-3 of 3 of 猫",
        2: r"a and byte 1 of 3 of \u200d",
        3: r"bytes 2-3 of 3 of \u200d",
    }
    assert tokens.marks()[0] == "猫:1 is byte 1 of 3 of 猫"

"""A text ends where it should, and nothing is released that would have to be taken back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.gpt.generate.text import GeneratedText, StopConditions
from regard.gpt.tokenizer.tokenizer import Tokenizer

BYTES = Tokenizer.train([], vocab_size=257)


class Syllables:
    """A tokenizer whose tokens are what it was given, so that a test says how a text is cut."""

    def __init__(self, *pieces):
        self.pieces = pieces

    def stream(self):
        return self

    def feed(self, token):
        return self.pieces[token]

    def finish(self):
        return ""


def pieces_of(pieces, *stop, reason="length"):
    """What a text releases for each piece and at its end; and why it ended."""
    text = GeneratedText(StopConditions(strings=stop), Syllables(*pieces))
    return [text.append(i) for i in range(len(pieces))] + [text.finish(reason)], text.reason


@pytest.mark.parametrize("stop", [11, -1, [3, 70_000]])
def test_a_stop_token_outside_the_vocabulary_would_never_stop_a_text(stop):
    with pytest.raises(ValueError, match=r"stop has token id .*, which is not among this model's 11 \(0 to 10\)"):
        StopConditions.read(stop, (), False, vocab_size=11)
    assert StopConditions.read([0, 10], (), False, vocab_size=11).tokens == {0, 10}


def test_the_end_token_ends_a_text_and_is_no_part_of_it():
    text = GeneratedText(StopConditions(ends=(0,)), BYTES)
    assert "".join(text.append(i) for i in [*BYTES.encode("ab"), 0, *BYTES.encode("c")]) == "ab"
    assert (text.reason, len(text.ids), text.count) == ("end", 2, 3)
    assert text.finish("length") == ""
    assert text.reason == "end"


def test_a_stop_token_ends_a_text_too():
    text = GeneratedText(StopConditions(ends=(0,), tokens=frozenset({5, 6})))
    for token in (9, 8, 6, 5):
        text.append(token)
    assert (text.reason, text.ids) == ("stop", [9, 8])


def test_a_stop_string_may_span_tokens_and_its_beginning_is_never_told():
    assert pieces_of(["one. T", "w", "o", "."], "Two") == (["one. ", "", "", "", ""], "stop")


def test_what_only_looked_like_a_stop_string_is_told_once_it_is_known():
    assert pieces_of(["a T", "w", "ig"], "Two") == (["a ", "", "Twig", ""], "length")
    assert pieces_of(["a T", "w"], "Two") == (["a ", "", "Tw"], "length")


def test_a_beginning_within_a_beginning_is_found():
    assert pieces_of(["x a", "a", "a", "b", "!"], "aab") == (["x ", "", "a", "", "", ""], "stop")


def test_of_several_stop_strings_the_first_to_be_complete_counts_however_the_text_is_cut():
    for pieces in (["abcdX"], ["abcd", "X"], ["a", "b", "c", "d", "X"]):
        parts, reason = pieces_of(pieces, "bcd", "abcdX")
        assert ("".join(parts), reason) == ("a", "stop")


def test_half_a_letter_waits_for_its_other_half():
    text = GeneratedText(StopConditions(), BYTES)
    assert [text.append(i) for i in BYTES.encode("aé")] == ["a", "", "é"]
    half = GeneratedText(StopConditions(), BYTES)
    assert half.append(BYTES.encode("é")[0]) == ""
    assert half.finish("length") == "\ufffd"


def test_a_stop_string_of_many_bytes_is_found():
    text = GeneratedText(StopConditions(strings=("→",)), BYTES)
    assert "".join(text.append(i) for i in BYTES.encode("go → on")) == "go "
    assert text.reason == "stop"


@given(
    st.text("ab", max_size=13), st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3), st.randoms()
)
def test_any_text_cut_anywhere_ends_before_the_first_stop_string(whole, stops, chance):
    cuts = sorted(chance.sample(range(len(whole) + 1), chance.randint(0, len(whole))))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    ends = [(whole.find(stop) + len(stop), whole.find(stop)) for stop in stops if stop in whole]
    parts, reason = pieces_of(pieces, *stops)
    assert "".join(parts) == (whole[: min(ends)[1]] if ends else whole)
    assert reason == ("stop" if ends else "length")


@pytest.mark.parametrize("stop", [None, [], ()])
def test_nothing_to_stop_at_is_nothing(stop):
    assert StopConditions.read(stop, (3,), is_text=True) == StopConditions(ends=(3,))


def test_one_stop_and_several_are_read():
    assert StopConditions.read("a", (), is_text=True).strings == ("a",)
    assert StopConditions.read(["a", "b"], (), is_text=True).strings == ("a", "b")
    assert StopConditions.read(5, (), is_text=False).tokens == {5}
    assert StopConditions.read([5, 0], (), is_text=True).tokens == {5, 0}


@pytest.mark.parametrize(
    "stop, text, message",
    [
        ("", True, "stop holds an empty string, which every text begins with"),
        (["a", 5], True, r"stop \(\['a', 5\]\) must be a string, a token id, or several of one kind"),
        ([2.5], True, r"stop \(\[2.5\]\) must be a string, a token id, or several of one kind"),
        (True, True, r"stop \(True\) must be a string"),
        (2.5, True, "stop must be a string, a token id, or several of one kind, not float"),
        ("a", False, r"stop \('a'\) is text, but the prompt is token ids; give ids: model.tokenizer.encode"),
    ],
)
def test_what_no_text_can_stop_at_is_told(stop, text, message):
    with pytest.raises(ValueError, match=message):
        StopConditions.read(stop, (), text)

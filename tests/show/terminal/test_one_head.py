"""The page of one head."""

from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch

from regard.show.terminal.one_head import head_page, means_in_lines
from regard.support.tokens import TextTokens


class SomeHead:
    """What a page needs of a head: each query's keys, from the strongest."""

    name = "h.4.attn[3]"
    marks = ()
    role = "previous token: weight on the token before 0.97"
    summary: ClassVar = {"entropy": 0.211, "distance": 1.0, "induction": float("nan")}

    def __init__(self, queries, keys):
        self.queries = queries
        self.key_tokens = None if keys is None else [TextTokens(keys)]
        self.query_tokens = self.key_tokens if keys is not None and len(keys) == queries else None
        sizes = (1, 1, queries, queries if keys is None else len(keys))
        self.record = SimpleNamespace(sizes=sizes)

    def top(self, k):
        keys = torch.tensor([[max(i - j, -1) for j in range(k)] for i in range(self.queries)])
        weights = torch.tensor([0.9, 0.08, 0.0049, 0.0001][:k]).repeat(self.queries, 1)
        return keys[None], weights[None]


def page(queries, tokens, width=80):
    return head_page(SomeHead(queries, tokens), width)


@pytest.fixture(autouse=True)
def _any_head(without_shape_checks):
    """A stand-in is no Head, which the type checks of a test run would refuse."""


def test_a_page_has_role_means_and_the_strongest_keys_of_each_token():
    assert page(3, ["The", " cat", " sat"]).splitlines() == [
        "  h.4.attn[3] · 3 tokens",
        "",
        "  previous token: weight on the token before 0.97",
        "  entropy 0.21  distance 1.00",
        "",
        "  The  The 0.90",
        "  cat  cat 0.90 · The 0.08",
        "  sat  sat 0.90 · cat 0.08",
    ]


def test_means_have_the_headings_of_tables_and_the_name_in_python_once():
    head = SomeHead(3, None)
    head.summary = {"entropy": 0.211, "sink": 0.5, "next": 0.25}
    assert means_in_lines(head, 40) == [
        "  entropy 0.21  first 0.50  next 0.25",
        "  first: weight on the first token; in",
        "    Python: .sink",
    ]


def test_of_a_long_text_the_last_20_tokens_are_listed():
    lines = page(23, [f" w{i}" for i in range(23)]).splitlines()
    assert [line.split()[0] for line in lines[5:-1]] == [f"w{i}" for i in range(3, 23)]
    assert lines[-1] == "  (the last 20 of 23 tokens)"


def test_tokens_that_are_unknown_are_numbered():
    assert [line.split()[0] for line in page(2, ["The", " cat", " sat"]).splitlines()[5:]] == ["0", "1"]
    assert page(2, None).splitlines()[5:] == ["  0  0 0.90", "  1  1 0.90 · 0 0.08"]


def test_pieces_of_words_are_marked_and_repeated_words_told_apart():
    assert page(4, ["Al", "ice", " saw", "ice"]).splitlines()[5:] == [
        "  Al       Al 0.90",
        "  ##ice@1  ##ice@1 0.90 · Al 0.08",
        "  saw      saw 0.90 · ##ice@1 0.08",
        "  ##ice@3  ##ice@3 0.90 · saw 0.08",
        "",
        "  ##ice@1 continues the word before it",
    ]


@pytest.mark.parametrize("width", [20, 31, 53])
def test_every_line_keeps_to_the_width(width):
    lines = page(5, [" Donaudampfschifffahrt"] * 5, width).splitlines()[1:]
    assert max(map(len, lines)) <= width


def test_a_long_token_is_shortened():
    assert "  Donaudampfschif…  Donaudampfschif… 0.90" in page(1, ["Donaudampfschifffahrt"])

"""The page of one head."""

from typing import ClassVar

import pytest
import torch

from regard.show.one_head import head_page, token_name


class SomeHead:
    """What a page needs of a head: each query's keys, from the strongest."""

    name = "h.4.attn[3]"
    role = "previous token: weight on the token before 0.97"
    summary: ClassVar = {"entropy": 0.211, "distance": 1.0, "induction": float("nan")}

    def __init__(self, queries):
        self.queries = queries

    def top(self, k):
        keys = torch.tensor([[max(i - j, -1) for j in range(k)] for i in range(self.queries)])
        weights = torch.tensor([0.9, 0.08, 0.0049, 0.0001][:k]).repeat(self.queries, 1)
        return keys[None], weights[None]


def page(queries, tokens, width=80):
    return head_page(SomeHead(queries), tokens, width)


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


def test_of_a_long_text_the_last_20_tokens_are_listed():
    lines = page(23, [f"w{i}" for i in range(23)]).splitlines()
    assert [line.split()[0] for line in lines[5:-1]] == [f"w{i}" for i in range(3, 23)]
    assert lines[-1] == "  (the last 20 of 23 tokens)"


def test_queries_of_cross_attention_are_numbered():
    lines = page(2, ["The", "cat", "sat"]).splitlines()
    assert [line.split()[0] for line in lines[5:]] == ["0", "1"]


@pytest.mark.parametrize("width", [20, 31, 53])
def test_every_line_keeps_to_the_width(width):
    lines = page(5, ["Donaudampfschifffahrt"] * 5, width).splitlines()[1:]
    assert max(map(len, lines)) <= width


def test_a_token_is_one_short_line_without_control_characters():
    assert token_name(" cat") == "cat"
    assert [token_name(blank) for blank in (" ", "\n\n", "\t")] == ["␣", "⏎⏎", "⇥"]
    assert token_name("a\x1bb") == "a�b"
    assert token_name("Donaudampfschifffahrt") == "Donaudampfsc"

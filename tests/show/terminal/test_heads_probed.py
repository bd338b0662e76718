"""A probe as a table."""

import pytest

import regard
from heads import models


@pytest.fixture(scope="module")
def report():
    return regard.probe(regard.GPT.from_pretrained("tiny"))


def test_the_table_says_what_was_run_and_lists_the_best_heads_first(report):
    lines = repr(report).splitlines()
    assert lines[0] == "  4 × 2 × 50 random tokens, after <|endoftext|>; vocabulary: 4096 ids, from"
    assert lines[3].split() == ["head", "role", "induction", "previous", "duplicate"]
    best = [max(map(float, line.split()[-3:])) for line in lines[4:16]]
    assert best == sorted(best, reverse=True)
    assert "  Heads by role: 1 induction · 2 previous token · 0 duplicate" in lines
    assert "  … and 36 more heads: .table(all=True)" in lines
    assert max(map(len, lines)) <= 80
    assert "…" not in lines[-3]


def test_every_head_is_shown_on_request(report):
    assert sum(line[2:3].isdigit() for line in report.table(all=True).splitlines()[4:]) == 48


def test_a_notebook_shows_the_same(report):
    page = report._repr_html_()
    assert "<td>4.3</td><td>induction</td>" in page
    assert "1 induction" in page


def test_a_model_without_such_heads_has_none():
    assert "Heads by role: 0 induction · 0 previous token · 0 duplicate" in repr(regard.probe(models.gpt2()))

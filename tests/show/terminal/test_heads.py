"""Heads as a table, in a terminal and in a notebook."""

import re
import sys

import pytest
import torch

from heads import dense
from heads.dense import random_call
from heads.made_calls import made_call
from heads.reports import seen_of, two_layers
from regard.attention.masks import causal
from regard.heads.report.report import Seen
from regard.heads.report.roles import ROLES
from regard.show.terminal.heads import print_heads
from regard.show.terminal.table import text_table

COLUMNS = ["head", "role", "entropy", "distance"]
ROWS = [["2.5", "previous token", 0.211, 1.0], ["11.10", "mixed", float("nan"), 12345.6]]


@pytest.fixture(autouse=True)
def _by_definition(monkeypatch):
    dense.stand_in(monkeypatch)


def rows_of(table):
    """The rows of heads in a table, as words."""
    return [line.split() for line in table.splitlines() if re.match(r"  \d+\.\d+ ", line)]


def test_the_table_fits_eighty_columns_and_says_how_many_more_there_are():
    seen = seen_of(*(random_call(H=11, mask=causal(), module=f"transformer.h.{i}.attn") for i in range(3)))
    lines = seen.table().splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == "  3 layers × 11 heads · 2 × 5 tokens · transformer.h.0–2.attn"
    at = lines.index("  All of them: seen.table(all=True)")
    assert lines[at - 1].startswith("  … and 9 more: ")
    assert lines[at + 1] == ""
    assert len(rows_of(seen.table(all=True))) == 33
    assert len(rows_of(seen.table(layer=1))) == 11


def test_a_legend_explains_the_columns_that_are_shown_and_no_others():
    seen = seen_of(random_call(T=11, mask=causal()))
    table, below = (part.splitlines() for part in seen.table(width=58).rsplit("\n\n", 1))
    shown = table[2].split()[2:]
    assert [line.split()[0] for line in below] == shown == ["entropy", "distance", "first", "previous", "self"]
    assert "  first     weight on the first token; in Python: .sink" in below
    assert max(map(len, seen.table().splitlines())) <= 80


def test_a_mean_over_other_rows_is_explained():
    repeated = random_call(T=5, mask=causal(), tokens=torch.zeros(2, 5, dtype=torch.long))
    last = seen_of(repeated).table().splitlines()[-1]
    assert last == "  Means over all tokens; induction: over repeated ones, so sums may exceed 1."


def test_shares_that_overlap_are_explained_where_a_row_sums_to_more_than_one():
    two = seen_of(random_call(T=2, mask=causal())).table().splitlines()  # the first token is the previous one, too
    assert two[-1].strip() == "The first token is also the one before the second, so sums may exceed 1."


def test_chosen_heads_are_a_table_in_their_order():
    seen = seen_of(*(random_call(H=13, mask=causal()) for _ in range(3)))
    heads = seen.heads(by="entropy")
    lines = repr(heads).splitlines()
    assert lines[0] == "  39 of 39 heads"
    assert [row[0] for row in rows_of(repr(heads))] == [f"{head.layer}.{head.head}" for head in heads[:24]]
    assert "  … and 15 more: .table(all=True)" in lines
    assert len(rows_of(heads.table(all=True))) == 39
    assert heads._repr_html_().count("<tr>") == 1 + 24
    assert repr(heads[:0]) == "  none of 39 heads"


def test_heads_with_a_clear_role_come_first():
    previous = dense.pattern(lambda i: max(i - 1, 0), 17, weight=0.9)
    even = dense.pattern(lambda i: 0, 17, weight=0.0)
    seen = seen_of(made_call("attention", weights=torch.cat([even, previous], 1)))
    assert [row[:2] for row in rows_of(repr(seen))] == [["0.1", "previous"], ["0.0", "broad"]]


def test_a_notebook_shows_the_same_table_and_no_markup_of_the_models():
    page = seen_of(random_call(module="<script>"))._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "<td>0.2</td>" in page


def test_an_empty_report_is_one_line():
    assert Seen().table() == repr(Seen()) == "  nothing was seen yet"


def test_columns_are_those_of_the_registry_that_have_a_value():
    columns = seen_of(random_call(T=11, mask=causal())).table(120).splitlines()[2].split()
    assert columns == ["head", "role", "entropy", "distance", "first", "previous", "self", "largest"]
    repeated = random_call(T=5, mask=causal(), tokens=torch.zeros(2, 5, dtype=torch.long))
    assert seen_of(repeated).table(120).splitlines()[2].split()[-2:] == ["induction", "largest"]


def test_a_comparison_says_how_many_changes_are_left_out():
    calls = [[random_call(H=13, mask=causal()) for _ in range(3)] for _ in range(2)]
    comparison = seen_of(*calls[0]).compare(seen_of(*calls[1]))
    lines = comparison.table().splitlines()
    assert lines[0] == "  39 of 39 heads; after − before, the largest change first"
    assert "  … and 15 more: .table(all=True), or fewer: .changed(0.2)" in lines
    assert len(rows_of(comparison.table(all=True))) == 39
    assert "  change    by how much, on a scale from 0 to 1" in lines
    assert "… and 15 more" in comparison._repr_html_()
    assert comparison._repr_html_().count("<tr>") == 1 + 24


def test_a_comparison_without_a_change_says_so():
    seen = two_layers()
    assert repr(seen.compare(seen).changed(0.01)) == "  none of 6 heads changed"


def test_every_role_that_says_what_a_head_does_has_a_colour():
    assert all(bool(role.terminal) == role.clear for role in ROLES.values())


@pytest.mark.parametrize("role", ["induction", "first token", "local"])
def test_a_terminal_gets_roles_in_colour(role, capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    print_heads(f"  head  role\n  0.1   {role}\n  0.2   mixed")
    lines = capsys.readouterr().out.splitlines()
    assert [("\x1b" in line) for line in lines] == [False, True, False]
    assert f"m{role}\x1b[0m" in lines[1]


def test_a_pipe_gets_plain_text(capsys):
    print_heads(text_table(COLUMNS, ROWS))
    assert capsys.readouterr().out == text_table(COLUMNS, ROWS) + "\n"


def test_a_terminal_gets_the_same_words_in_colour(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    print_heads(text_table(["head", "role", "self", "distance"], ROWS))
    printed = capsys.readouterr().out
    assert "\x1b[32mprevious token\x1b[0m" in printed
    assert "\x1b" not in printed.split("mixed")[1]
    assert "\x1b" not in printed.splitlines()[0]  # self is a role, too, but here the name of a column

"""Aligned text and HTML."""

import pytest

from regard.show.terminal.table import Signed, html_table, shorten, terminal_width, text_table

COLUMNS = ["head", "role", "entropy", "distance"]
ROWS = [["2.5", "previous token", 0.211, 1.0], ["11.10", "mixed", float("nan"), 12345.6]]


def test_words_stand_left_and_numbers_right():
    assert text_table(COLUMNS, ROWS).splitlines() == [
        "  head   role            entropy  distance",
        "  2.5    previous token     0.21      1.00",
        "  11.10  mixed                 ·     12346",
    ]


def test_columns_that_do_not_fit_are_left_out_from_the_last_and_named():
    assert text_table(COLUMNS, ROWS, width=35).splitlines() == [
        "  head   role            entropy",
        "  2.5    previous token     0.21",
        "  11.10  mixed                 ·",
        "  not shown at this width: distance",
    ]
    assert text_table(COLUMNS, ROWS, width=30).splitlines()[-2:] == [
        "  not shown at this width:",
        "    entropy, distance",
    ]
    without_names = text_table([], [["cat", 0.5, 0.25, 0.125]], width=28)
    assert without_names == "  cat  0.50  0.25  0.12"
    without_names = text_table([], [["cat", 0.5, 0.25, 0.125]], width=20).splitlines()
    assert " ".join(" ".join(without_names).split()) == "cat 0.50 0.25 not shown at this width: the last 1"
    assert max(map(len, text_table(COLUMNS, ROWS, width=12).splitlines())) <= 12


def test_a_single_column_that_does_not_fit_is_marked_as_shortened():
    assert text_table(["name"], [["Donaudampfschifffahrt"]], width=12) == "  name\n  Donaudamp…"


def test_no_rows_are_no_error():
    assert text_table(COLUMNS, []) == "  head  role  entropy  distance"


def test_without_names_there_is_no_heading():
    assert text_table([], [["The", 1.0], ["cat", 0.5]]) == "  The  1.00\n  cat  0.50"
    assert text_table([], []) == ""


def test_strings_stand_right_where_only_the_first_columns_are_words():
    assert text_table(["who", "what", "ms"], [["we", "fast", "1"], ["they", "x", "123"]], marked=0, words=2) == (
        "  who   what   ms\n"
        "→ we    fast    1\n"
        "  they  x     123"
    )  # fmt: skip


def test_without_a_limit_every_column_stays_whole():
    long = "x" * 130
    assert text_table(["a", "b"], [[long, "y"]], None).splitlines()[1] == f"  {long}  y"


STEPS = ["step", "operation", "shape", "why"]
TRACE = [["queries", "W_query(x) @ something long", "2 × 7", "what a token looks for"], ["x", "input", "7", ""]]


def test_columns_are_cut_in_turn_and_the_last_takes_the_remaining_width():
    assert text_table(STEPS, TRACE, 60, cut={1: 9, 3: 12}).splitlines() == [
        "  step     operation                    shape  why",
        "  queries  W_query(x) @ something long  2 × 7  what a token…",
        "  x        input                        7",
    ]
    assert text_table(STEPS, TRACE, 50, cut={1: 9, 3: 12}).splitlines() == [
        "  step     operation           shape  why",
        "  queries  W_query(x) @ some…  2 × 7  what a toke…",
        "  x        input               7",
    ]


def test_a_table_that_fits_is_not_cut():
    assert text_table(STEPS, TRACE, 80, cut={1: 9, 3: 12}) == text_table(STEPS, TRACE, 80)


@pytest.mark.parametrize("width", range(38, 90))
def test_a_cut_table_keeps_to_the_width(width):
    assert max(map(len, text_table(STEPS, TRACE, width, cut={1: 9, 3: 12}).splitlines())) <= width


def test_a_column_keeps_its_least_width_even_where_the_line_becomes_too_long():
    assert text_table(STEPS, TRACE, 20, cut={1: 9, 3: 12}).splitlines()[1] == "  queries  W_query(…  2 × 7  …"


def test_a_change_shows_its_sign_unless_it_is_nothing():
    rows = [["a", Signed(0.25)], ["b", Signed(-0.031)], ["c", Signed(0.001)], ["d", Signed("nan")]]
    assert text_table([], rows).splitlines() == ["  a  +0.25", "  b  −0.03", "  c   0.00", "  d      ·"]


def test_text_is_shortened_to_exactly_the_width():
    assert [shorten("head", width) for width in (5, 4, 3, 1)] == ["head", "head", "he…", "…"]


@pytest.mark.parametrize(("columns", "width"), [("50", 50), ("120", 120), ("300", 120)])
def test_lines_are_as_wide_as_the_terminal_and_never_wider_than_120(columns, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    assert terminal_width() == width


def test_cells_are_aligned_left_in_html_on_request():
    page = html_table("1 step", ["step", "why"], [["x", 0.5]], left=True)
    assert page == (
        "<p>1 step</p><table><thead><tr><th style='text-align:left'>step</th><th style='text-align:left'>why</th></tr>"
        "</thead><tbody><tr><td style='text-align:left'>x</td><td style='text-align:left'>0.50</td></tr></tbody>"
        "</table>"
    )


def test_html_escapes_every_name():
    page = html_table("<a>", ["<b>"], [["<c>"]], "<d>")
    assert not {"<a>", "<b>", "<c>", "<d>"} & set(page.replace("><", ">|<").split("|"))
    assert page.count("&lt;") == 4

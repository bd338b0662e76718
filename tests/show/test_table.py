"""Heads as a table."""

import sys

from regard.show.heads import names_in_short, print_heads
from regard.show.table import html_table, text_table

COLUMNS = ["head", "role", "entropy", "distance"]
ROWS = [["2.5", "previous token", 0.211, 1.0], ["11.10", "mixed", float("nan"), 12345.6]]


def test_words_stand_left_and_numbers_right():
    assert text_table(COLUMNS, ROWS).splitlines() == [
        "  head   role            entropy  distance",
        "  2.5    previous token     0.21      1.00",
        "  11.10  mixed                 ·     12346",
    ]


def test_columns_that_do_not_fit_are_left_out_from_the_last():
    assert text_table(COLUMNS, ROWS, width=35).splitlines()[0] == "  head   role            entropy"
    assert max(map(len, text_table(COLUMNS, ROWS, width=12).splitlines())) <= 12


def test_no_rows_are_no_error():
    assert text_table(COLUMNS, []) == "  head  role  entropy  distance"


def test_html_escapes_every_name():
    page = html_table("<a>", ["<b>"], [["<c>"]], "<d>")
    assert not {"<a>", "<b>", "<c>", "<d>"} & set(page.replace("><", ">|<").split("|"))
    assert page.count("&lt;") == 4


def test_names_that_differ_by_a_running_number_are_one():
    names = [f"model.layers.{i}.self_attn" for i in range(12)]
    assert names_in_short(names) == "model.layers.0–11.self_attn"
    assert names_in_short(["encoder.0", "encoder.1", "decoder.0", "decoder.1"]) == "encoder.0–1, decoder.0–1"
    assert names_in_short(["h.0", "h.2"]) == "h.0, h.2"
    assert names_in_short(["a.0.b.0", "a.0.b.1", "a.1.b.0"]) == "a.0.b.0–1, a.1.b.0"
    assert names_in_short([]) == ""


def test_many_names_are_cut_to_the_width():
    assert len(names_in_short([f"{c}{c}{c}" for c in "abcdefghijklmnop"], width=30)) == 30


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

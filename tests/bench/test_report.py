"""Lines, notes and files of results."""

import json
import os

import pytest

from regard.bench.report import reason, say, table_lines, wrap, write_json


def test_a_table_is_given_by_columns():
    columns = [["we", "they"], ["fast", "x"], ["1", "123"]]
    assert table_lines(["who", "what", "ms"], columns, marked=0, words=2) == [
        "  who   what   ms",
        "→ we    fast    1",
        "  they  x     123",
    ]


def test_json_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "new" / "found.json"
    write_json(path, {"a": [1, 2.5, None], "×": "ours"})
    assert json.loads(path.read_text(encoding="utf-8")) == {"a": [1, 2.5, None], "×": "ours"}
    with pytest.raises(ValueError, match="Out of range float values"):
        write_json(path, {"a": float("nan")})
    assert json.loads(path.read_text(encoding="utf-8"))["a"] == [1, 2.5, None]
    assert os.listdir(path.parent) == ["found.json"]


def test_a_note_is_wrapped_and_indented():
    lines = wrap("regard: failed: " + 12 * "a long reason ")
    assert max(map(len, lines)) <= 78
    assert [line[:4] for line in lines] == ["  re", "    ", "    "]


def test_a_reason_is_the_first_line_that_says_something():
    assert reason(RuntimeError("\n\n  no such kernel \nand a long story")) == "RuntimeError: no such kernel"
    assert reason(KeyError()) == "KeyError: "
    assert len(reason(ValueError("x" * 500))) == 160


def test_lines_are_printed_at_once(capsys):
    say("two\nlines")
    assert capsys.readouterr().out == "two\nlines\n"

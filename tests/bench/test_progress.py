"""Stages on stderr."""

import sys

from regard.bench.progress import StageProgress


def test_without_a_terminal_each_stage_is_a_line(capsys):
    with StageProgress() as progress:
        progress.stage("checking")
        progress.tick(1, 3)
        progress.stage("timing")
    assert capsys.readouterr().err == "  checking ...\n  timing ...\n"


def test_in_a_terminal_there_is_a_bar_that_is_removed_at_the_end(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with StageProgress() as progress:
        progress.stage("checking")
        progress.tick(1, 4)
        print("a table")
    captured = capsys.readouterr()
    assert captured.out == "a table\n"
    assert "checking" in captured.err
    assert "25%" in captured.err
    assert "checking ..." not in captured.err


def test_without_rich_a_terminal_gets_lines(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    with StageProgress() as progress:
        progress.stage("timing")
    assert capsys.readouterr().err == "  timing ...\n"

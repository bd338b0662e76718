"""The plain lines, the bar, and the remaining time."""

import sys

import pytest

from regard.gpt.train import progress
from regard.gpt.train.progress import ProgressBar, duration, note

LINES = [{"step": n, "loss": 1 / n, "tokens_per_second": 12345.6} for n in range(1, 8)]


def test_without_a_terminal_there_are_plain_lines_now_and_then(capsys, monkeypatch):
    monkeypatch.setattr(progress, "LINE_INTERVAL", 3600)
    with ProgressBar(7, 0, shown=True) as bar:
        for line in LINES:
            bar.update(line | ({"val_loss": 0.5, "sample": "a\nb"} if line["step"] == 5 else {}), 2.0)
    assert capsys.readouterr().err.splitlines() == [
        "  step 5 · validation loss 0.5000",
        "  step 5 · a b",
        "  step 7 of 7 · loss 0.143 · 12,346 tokens/s · 0 s left",
    ]


def test_on_a_terminal_there_is_a_bar_and_lines_above_it(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with ProgressBar(7, 3, shown=True) as bar:
        for line in LINES[3:5]:
            bar.update(line, 30.0)
        bar.print("[bold]a line[/bold]")
    told = capsys.readouterr().err
    assert "[bold]a line[/bold]" in told
    assert "5/7" in told
    assert "loss 0.200 · 12,346 tokens/s · 1 min 00 s left" in told


def test_silence_is_silent(capsys):
    with ProgressBar(7, 0, shown=False) as bar:
        bar.update(LINES[-1], 1.0)
        bar.print("nothing")
    assert capsys.readouterr() == ("", "")


def test_time_is_said_as_people_say_it():
    assert [duration(t) for t in (0.2, 59.6, 61.0, 3600.0, 90_061.0)] == [
        "0 s",
        "1 min 00 s",
        "1 min 01 s",
        "1 h 00 min",
        "25 h 01 min",
    ]


def test_a_note_is_never_lost_also_where_progress_is_not_shown(capsys):
    note("a file is damaged", shown=True)
    assert capsys.readouterr().err == "  a file is damaged\n"
    with pytest.warns(UserWarning, match="a file is damaged"):
        note("a file is damaged", shown=False)
    assert capsys.readouterr().err == ""

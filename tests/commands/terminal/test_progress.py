"""What is said while a command works."""

import sys
import time

from regard.commands.terminal.progress import progress_bar, said_after_a_second


def test_a_bar_is_drawn_on_a_terminal_only(monkeypatch, capsys):
    for is_terminal, shown, expected in ((False, True, False), (True, False, False), (True, True, True)):
        monkeypatch.setattr(sys.stderr, "isatty", lambda is_terminal=is_terminal: is_terminal)
        monkeypatch.setenv("TERM", "xterm")
        with progress_bar("counting", shown) as advance:
            advance(2, 7)
        written = capsys.readouterr()
        assert ("counting" in written.err, "2/7" in written.err, written.out) == (expected, expected, "")


def test_what_takes_long_is_said_and_removed_and_what_is_quick_is_not(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with said_after_a_second("reading", seconds=0):
        while "reading" not in (written := capsys.readouterr().err):
            time.sleep(0.01)
    assert (written, capsys.readouterr().err) == ("  reading …", f"\r{' ' * 11}\r")
    with said_after_a_second("reading", seconds=100):
        pass
    assert capsys.readouterr().err == ""


def test_nothing_is_said_without_a_terminal(capsys):
    with said_after_a_second("reading", seconds=0):
        time.sleep(0.01)
    assert capsys.readouterr().err == ""

"""Progress bars."""

import sys

from regard.commands.terminal.progress import progress_bar


def test_a_bar_is_drawn_on_a_terminal_only(monkeypatch, capsys):
    for is_terminal, shown, expected in ((False, True, False), (True, False, False), (True, True, True)):
        monkeypatch.setattr(sys.stderr, "isatty", lambda is_terminal=is_terminal: is_terminal)
        monkeypatch.setenv("TERM", "xterm")
        with progress_bar("counting", shown) as advance:
            advance(2, 7)
        written = capsys.readouterr()
        assert ("counting" in written.err, "2/7" in written.err, written.out) == (expected, expected, "")

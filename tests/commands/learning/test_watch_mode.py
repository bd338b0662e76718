"""Watch mode, played in a real terminal by a script that types."""

import os
import re
import signal
import sys
import time

import pexpect
import pytest
from tiny_course import write_course

from processes import children, is_alive
from regard.school.course.courses import read_course
from regard.school.course.learner import start_folder
from terminal import C_LOCALE, ESCAPE, hear_interrupts, surroundings

KEYS = "h hint   l list   r run again   q quit"
DONE = "n next   l list   r run again   q quit"
RIGHT = "def twice(x):\n    return x + x\n"


@pytest.fixture
def learner(tmp_path):
    return start_folder(tmp_path / "answers", read_course(write_course(tmp_path / "tiny")))[0]


class Played:
    """`regard learn` in a terminal of its own, in the learner's folder."""

    def __init__(self, folder, *arguments, columns=80, **environment):
        self.screen = pexpect.spawn(
            sys.executable,
            ["-m", "regard", "learn", *arguments],
            cwd=str(folder.path),
            env=surroundings({"TERM": "xterm-256color"} | environment),
            dimensions=(24, columns),
            encoding="utf-8",
            timeout=90,
            preexec_fn=hear_interrupts,
        )
        self.folder, self.seen = folder, ""

    def wait(self, text):
        """Wait for a text; what was on the screens until then, without escape sequences."""
        self.screen.expect_exact(text)
        shown = self.screen.before + self.screen.after
        self.seen += shown
        return ESCAPE.sub("", shown)

    def press(self, key, text):
        self.screen.send(key)
        return self.wait(text)

    def save(self, name, text):
        """Save as an editor does: another file, and a rename."""
        path = self.folder.file_of(self.folder.course.lesson(name))
        path.with_suffix(".swp").write_text(text)
        path.with_suffix(".swp").replace(path)

    def rest(self, seconds):
        """What is written in the next seconds."""
        end, rest = time.monotonic() + seconds, ""
        while time.monotonic() < end:
            try:
                rest += self.screen.read_nonblocking(65536, timeout=0.1)
            except pexpect.TIMEOUT:
                continue
        return rest

    def leave(self):
        """The last words and the exit status."""
        self.screen.expect(pexpect.EOF)
        last = ESCAPE.sub("", self.screen.before)
        self.echoes = self.screen.getecho()
        self.screen.close()
        return last, self.screen.exitstatus


def test_start_fail_hint_fix_pass_next_quit_and_go_on_tomorrow(learner):
    played = Played(learner)
    assert "This file is right as it is." in played.wait("checking…")
    first = played.wait(DONE)
    assert "This file is right as it is.\r\n\r\n  ✓ hello is right" in first
    assert "Next: write something.\r\n  02_twice.py   press n" in first
    second = played.press("n", KEYS)
    assert "Exercise 2 of 3 · Double a tensor\r\n  02_twice.py" in second
    assert "Line 8 is not written yet." in second
    assert "First 02_twice.py must be right; h gives a hint." in played.press("\r", KEYS)
    assert "Hint 1 of 3, where:\r\n    Line 8." in played.press("h", KEYS)

    played.save("twice", "def twice(x):\n    print('here')\n    return x * x\n")
    played.wait("checking…")
    wrong = played.wait(KEYS)
    assert "✗ twice: squared" in wrong
    assert "Your code printed:\r\n    here" in wrong
    assert "Hint 1 of 3" in wrong
    assert played.rest(0.7) == ""  # exactly one check
    assert "> →  2  twice   Double a tensor       1 hint" in played.press("l", "other keys: back")
    assert "✗ twice: squared" in played.press("x", KEYS)

    played.save("twice", RIGHT)
    right = played.wait("n next   w other ways   l list   r run again   q quit")
    assert right.count("checking…") == 1
    for text in ("✓ twice is right", "2·x = x + x.", "Your weights"):
        assert text in right
    assert "Another way" not in right  # it would not fit
    ways = played.press("w", DONE)
    assert "Another way, by product:" in ways
    assert "return sum([x, x])" in ways
    assert "\x1b[32m  ✓ twice is right" in played.seen
    played.save("twice", "def twice(x):\n    return x\n")
    assert "✗ twice: not doubled" in played.wait("n next   h hint   l list")  # it was right before
    played.press("\r", KEYS)
    last, status = played.press("q", "\r\n"), played.leave()
    assert status[1] == 0, last
    assert "03_choose.py   Go on: regard learn" in status[0]

    record = learner.progress.record("twice")
    assert (record.state, record.hints, record.attempts) == ("done", 1, 2)
    tomorrow = Played(learner, NO_COLOR="1")
    assert "Exercise 3 of 3" in tomorrow.wait("checking…")
    tomorrow.wait(KEYS)
    tomorrow.save("choose", 'answer = "b"\n')
    assert "All 3 exercises are done." in tomorrow.wait(DONE)
    assert "All 3 exercises are done." in tomorrow.press("n", DONE)
    assert not re.search(r"\x1b\[\d+m", tomorrow.seen)
    tomorrow.press("\x04", "done.")  # Ctrl-D
    assert tomorrow.leave()[1] == 0


def test_a_kill_at_any_moment_loses_no_progress_and_leaves_no_process(learner):
    played = Played(learner)
    played.wait(DONE)
    played.press("n", KEYS)
    played.save("twice", RIGHT)
    played.wait("✓ twice")
    workers = children(played.screen.pid)
    assert workers
    os.kill(played.screen.pid, signal.SIGKILL)
    played.screen.expect(pexpect.EOF)
    assert learner.progress.record("twice").is_done
    end = time.monotonic() + 30
    while any(map(is_alive, workers)) and time.monotonic() < end:
        time.sleep(0.1)
    assert not any(map(is_alive, workers))


def test_ctrl_c_leaves_an_endless_loop_with_a_terminal_as_before(learner):
    learner.progress.update("hello", state="done")
    played = Played(learner, columns=80)
    played.wait(KEYS)
    assert not played.screen.getecho()
    played.save("twice", "def twice(x):\n    while True:\n        pass\n")
    played.wait("checking…")
    time.sleep(0.5)
    played.screen.sendintr()
    last, status = played.leave()
    assert status == 130, last
    assert "Traceback" not in last
    assert played.echoes
    assert "02_twice.py   Go on: regard learn" in last


def test_a_new_save_or_q_ends_the_check_of_an_endless_loop_at_once(learner):
    learner.progress.update("hello", state="done")
    played = Played(learner)
    played.wait(KEYS)
    played.screen.timeout = 15  # the loop alone would take 20 s
    endless = "def twice(x):\n    while True:\n        pass\n"
    played.save("twice", endless)
    played.wait("checking…")
    time.sleep(0.5)
    played.save("twice", "def twice(x):\n    return x * x\n")
    assert "✗ twice: squared" in played.wait(KEYS)
    assert learner.progress.record("twice").attempts == 1  # what was cancelled is none
    played.save("twice", endless)
    played.wait("checking…")
    time.sleep(0.5)
    played.screen.send("lq")
    assert played.leave()[1] == 0


@pytest.mark.slow
def test_saving_another_exercise_goes_there_and_a_new_width_is_drawn_at_once(learner):
    played = Played(learner)
    played.wait(DONE)
    played.save("choose", 'answer = "a"\n')
    assert "answer: a" in played.wait(KEYS)
    played.screen.setwinsize(24, 42)
    drawn = played.wait("q quit").splitlines()
    assert max(map(len, drawn)) <= 42
    learner.file_of(learner.course.lesson("choose")).unlink()
    assert played.rest(0.5) == ""
    assert "03_choose.py is not there" in played.press("r", "q quit")
    played.press("q", "Go on")
    assert played.leave()[1] == 0


@pytest.mark.slow
def test_without_unicode_everything_is_ascii(learner):
    learner.progress.update("hello", state="done")
    played = Played(learner, **C_LOCALE)
    played.wait(KEYS)
    played.save("twice", RIGHT)
    assert "+ twice is right" in played.wait("w other ways")
    played.press("l", "other keys: back")
    played.press("q", "Go on")
    assert played.leave()[1] == 0
    assert played.seen.isascii()
    assert "?" not in ESCAPE.sub("", played.seen)

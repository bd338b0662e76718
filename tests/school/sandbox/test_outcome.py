"""Outcomes: what a submission says of itself is bounded, printable, and checked."""

import pytest

from regard.school.sandbox.outcome import (
    FailedLine,
    Outcome,
    SubmissionFailure,
    printable_text,
    read_failure,
    with_last_line,
)

GOOD = {"type": "KeyError", "message": "'seven'", "stage": "run", "lines": [["homework.py", 7, "forward"]]}


def test_a_failure_is_read():
    assert read_failure(None) is None
    assert read_failure(GOOD) == SubmissionFailure(
        "KeyError", "'seven'", "run", (FailedLine("homework.py", 7, "forward"),)
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"type": 7}, "no text"),
        ({"message": None}, "no text"),
        ({"stage": "verdict"}, "no stage"),
        ({"lines": "all"}, "not {type, message, stage, lines}"),
        ({"lines": [["homework.py", 7]]}, r"not \[file, line, function\]"),
        ({"lines": [["homework.py", "7", "f"]]}, r"not \[file, line, function\]"),
        ({"lines": [["homework.py", True, "f"]]}, r"not \[file, line, function\]"),
        ({"lines": [["homework.py", 1 << 40, "f"]]}, r"not \[file, line, function\]"),
        ({"lines": [[7, 7, "f"]]}, "no text"),
    ],
)
def test_what_is_no_failure_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        read_failure({**GOOD, **change})


@pytest.mark.parametrize("values", [7, [], "failed", {}])
def test_other_values_are_no_failure(values):
    with pytest.raises(ValueError, match=r"not {type, message, stage, lines}"):
        read_failure(values)


def test_long_texts_and_many_lines_are_cut():
    failure = read_failure({**GOOD, "message": "x" * 10_000, "lines": GOOD["lines"] * 1000})
    assert failure.message == "x" * 4000 + " …"
    assert len(failure.lines) == 40


def test_control_characters_do_not_reach_a_terminal():
    assert printable_text("a\x1b[2J\x07\u202e\ud800\r\n\tb", 99) == "a\\x1b[2J\\x07\\u202e\\ud800\\r\n\tb"


def test_only_one_word_is_finished():
    assert Outcome("finished", "").finished
    assert not Outcome("failed", "").finished


DUMP = (
    "Timeout (0:00:00.475000)!\nThread 0x00007f (most recent call first):\n"
    '  File "/lib/x.py", line 3 in f\n  File "/home/ana/homework.py", line 11 in g\n'
)


def test_the_last_line_of_a_persons_own_file_is_told_when_time_was_over():
    outcome = Outcome("out of time", "It was stopped after 0.5 s.", output=f"printed\n{DUMP}")
    told = with_last_line(outcome, "/home/ana/homework.py")
    assert (told.sentence, told.output) == ("It was stopped after 0.5 s, in line 11.", "printed\n")
    assert with_last_line(outcome, "/home/ben/homework.py").sentence == "It was stopped after 0.5 s."
    told = with_last_line(Outcome("finished", "It ran.", output=DUMP), "/home/ana/homework.py")
    assert (told.sentence, told.output) == ("It ran.", "")


def test_what_only_looks_like_that_stays():
    outcome = Outcome("out of time", "It was stopped.", output="Timeout (soon)")
    assert with_last_line(outcome, "homework.py") == outcome

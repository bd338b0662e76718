"""The file with the learner's progress."""

import os
import signal
import subprocess
import sys
import time

import pytest

from regard.school.course.progress import FILE, HEADING, ExerciseRecord, ProgressFile


@pytest.fixture
def progress(tmp_path):
    return ProgressFile.create(tmp_path / FILE, "regard")


def test_a_change_is_a_line_that_a_person_can_read(progress):
    progress.update("scale", more_hints=1, date="2026-11-16")
    record = progress.update("scale", state="done", more_attempts=3, answer="77ab")
    assert record == ExerciseRecord("scale", "done", hints=1, attempts=3, date="2026-11-16", answer="77ab")
    assert progress.path.read_text() == (
        f"{HEADING}\ncourse: regard\nscale        done  hints=1 attempts=3 date=2026-11-16 answer=77ab\n"
    )
    assert ProgressFile(progress.path).records() == {"scale": record}
    assert ProgressFile(progress.path).course == "regard"


def test_what_is_not_known_is_kept_where_it_is(progress):
    text = (
        f"# my notes\n{HEADING}\n\nscale  open  mood=good hints=1 hints=many attempts=2\nsomething else\n"
        "course: ../elsewhere\nmask  dancing  hints=3\n"
    )
    progress.path.write_text(text)
    progress.update("scale", more_hints=1)
    progress.update("mask", more_hints=1)
    assert progress.path.read_text() == (
        f"# my notes\n{HEADING}\n\nscale        open  hints=2 attempts=2 mood=good hints=many\nsomething else\n"
        "course: ../elsewhere\nmask  dancing  hints=3\nmask         open  hints=1 attempts=0\n"
    )
    assert progress.course == "../elsewhere"
    assert progress.record("scale").others == ("mood=good", "hints=many")


def test_an_exercise_without_a_line_has_an_empty_record(progress):
    assert progress.record("rotary") == ExerciseRecord("rotary")
    assert not progress.record("rotary").is_done


def test_a_course_that_moved_is_noted_and_nothing_else_changes(progress):
    progress.update("scale", state="done")
    progress.move_course("/home/ana/course")
    assert progress.course == "/home/ana/course"
    assert progress.record("scale").is_done


def test_a_file_without_its_course_says_what_it_needs(progress):
    progress.path.write_text("scale open\n")
    with pytest.raises(ValueError, match="needs a line such as: course: regard"):
        _ = progress.course
    progress.path.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="is not UTF-8 text; mend it, or move it away"):
        progress.records()


ADD = (
    "import sys; from pathlib import Path; from regard.school.course.progress import ProgressFile\n"
    "progress = ProgressFile(Path(sys.argv[1])); print('ready', flush=True)\n"
    "for i in range(int(sys.argv[3])): progress.update(sys.argv[2], more_attempts=1); print(i + 1, flush=True)\n"
)


def test_two_processes_lose_nothing_of_each_other(progress):
    command = [sys.executable, "-c", ADD, str(progress.path)]
    running = [
        subprocess.Popen([*command, name, "40"], stdout=subprocess.DEVNULL) for name in ("scale", "scale", "mask")
    ]
    assert [process.wait() for process in running] == [0, 0, 0]
    assert {name: one.attempts for name, one in progress.records().items()} == {"scale": 80, "mask": 40}


def test_killed_at_any_moment_nothing_that_was_written_is_lost(progress):
    progress.update("mask", state="done")
    command = [sys.executable, "-c", ADD, str(progress.path), "scale", "100000"]
    for pause in (0.02, 0.031, 0.043, 0.057):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        before = progress.record("scale").attempts
        assert process.stdout.readline() == "ready\n"
        time.sleep(pause)
        os.kill(process.pid, signal.SIGKILL)
        told = [int(line) for line in process.communicate()[0].split()]
        assert progress.record("mask").is_done
        assert progress.record("scale").attempts - before in (len(told), len(told) + 1)

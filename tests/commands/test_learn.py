"""`regard learn` as a person types it; watch mode is in learning/test_watch_mode.py."""

import json
import subprocess
import sys
from contextlib import nullcontext

import pytest
from tiny_course import FILES, write_course
from typer.testing import CliRunner

from regard.cli import app, main
from regard.school.course.answers import AnswerChecker
from regard.school.course.learner import open_folder


def learn(*arguments, typed=None):
    result = CliRunner().invoke(app, ["learn", *map(str, arguments)], input=typed)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def started(tmp_path, monkeypatch):
    """A folder with the tiny course and a learner's folder, which is the current one."""
    monkeypatch.chdir(tmp_path)
    write_course(tmp_path / "tiny")
    learn("start", "answers", "--course", "tiny")
    monkeypatch.chdir(tmp_path / "answers")
    return open_folder(tmp_path / "answers")


def test_a_start_says_what_was_written_and_what_is_next(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_course(tmp_path / "tiny")
    result = learn("start", "--course", "tiny")
    assert result.output == (
        "\n  A tiny course\n  3 exercises written to tiny-answers.\n\n  Next, in a terminal:\n\n    cd tiny-answers\n"
        "    regard learn\n\n  and open 01_hello.py in your editor.\n\n"
    )
    (tmp_path / "tiny-answers" / "02_twice.py").unlink()
    assert (
        "1 exercise written to tiny-answers; 2 were there and are as they were."
        in learn("start", "--course", "tiny").output
    )
    assert "tiny-answers has all 3 exercises." in learn("--course", "tiny", "start").output
    monkeypatch.chdir(tmp_path / "tiny-answers")
    assert "  . has all 3 exercises." in learn("start", "--course", "../tiny").output  # and no second course in it


@pytest.mark.parametrize("arguments", [[], ["run"], ["list"], ["status"], ["hint"], ["reset", "twice"]])
def test_without_a_course_every_command_says_how_to_start(tmp_path, monkeypatch, capsys, arguments):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["regard", "learn", *arguments])
    with pytest.raises(SystemExit, match="2"):
        main()
    told = capsys.readouterr()
    assert (
        told.err
        == "regard: there is no course in this folder; cd into the folder of your course, or start one here: regard "
        "learn start\n"
    )


def test_a_list_and_a_status_show_what_was_done(started):
    started.progress.update("hello", state="done", attempts=1)
    started.progress.update("twice", hints=2, attempts=3, solution="seen")
    lines = learn("list").output.splitlines()
    assert lines[1:] == [
        "  A tiny course: 1 of 3 done",
        "",
        "  Begin",
        "  ✓  1  hello   How the course works",
        "  →  2  twice   Double a tensor       2 hints, solution seen, 3 attempts",
        "",
        "  End",
        "  ·  3  choose  What a softmax makes",
        "",
        "  Next: Double a tensor.",
        "  02_twice.py   Go on: regard learn",
        "",
    ]
    status = learn("status").output
    assert "  ██████████····················  1 of 3 done" in status
    assert "  Begin    1 of 2  2      1" in status


def test_hints_come_one_by_one_and_the_end_names_the_solution(started):
    assert "Hint 1 of 3, where:\n    Line 8." in learn("hint", "twice").output
    assert "Then save 02_twice.py, or: regard learn run twice" in learn("hint", "2").output
    third = learn("hint", "twice").output
    assert "Hint 3 of 3, almost:" in third
    assert "no more" not in third
    last = learn("hint", "twice").output
    assert "There are no more hints.\n  The solution: regard learn solution twice --give-up" in last
    assert "Hint 1 of 3" in last
    assert started.progress.record("twice").hints == 3


def test_a_solution_is_shown_after_success_or_to_who_gives_up(started):
    learn("hint", "twice")
    with pytest.raises(
        ValueError, match=r"twice is not done yet \(2 hints left: regard learn hint twice\); .* add --give-up"
    ):
        learn("solution", "twice")
    assert started.progress.record("twice").solution == ""
    assert learn("solution", "twice", "--give-up").output == FILES["twice/solution.py"]
    assert started.progress.record("twice").solution == "seen"
    started.progress.update("choose", state="done")
    assert learn("solution", "choose").output == FILES["choose/solution.py"]
    assert started.progress.record("choose").solution == ""


def test_a_reset_asks_and_keeps_the_old_file(started):
    file = started.path / "02_twice.py"
    file.write_text("mine\n")
    assert learn("reset", "twice", typed="n\n").exit_code == 1
    assert file.read_text() == "mine\n"
    result = learn("reset", "twice", typed="y\n")
    assert "02_twice.py is as at the beginning. Your old file: 02_twice.py.old-1. Go on: regard learn" in result.output
    assert (started.path / "02_twice.py.old-1").read_text() == "mine\n"
    assert "old-2" in learn("reset", "02_twice.py", "--yes").output


@pytest.fixture(scope="module")
def checker():
    with AnswerChecker() as checker:
        yield checker


def test_a_run_and_a_watch_without_a_terminal_check_once(started, checker, monkeypatch):
    monkeypatch.setattr(
        "regard.school.course.answers.AnswerChecker", lambda: nullcontext(checker)
    )  # one worker for all runs
    assert learn().exit_code == 0  # the first exercise passes
    assert started.progress.record("hello").is_done
    result = learn("watch")
    assert (result.exit_code, "· Line 8 is not written yet." in result.output) == (1, True)
    assert "A hint: regard learn hint twice" in result.output
    (started.path / "02_twice.py").write_text("def twice(x):\n    return x * x\n")
    result = learn("run", "twice")
    assert (result.exit_code, "✗ twice: squared" in result.output) == (1, True)
    (started.path / "02_twice.py").write_text("def twice(x):\n    return x + x\n")
    result = learn("run")
    assert result.exit_code == 0
    assert "Next: a question.\n  03_choose.py   Go on: regard learn" in result.output
    assert max(map(len, result.output.splitlines())) <= 80


def test_a_certificate_is_json_that_is_verified(started, tmp_path, monkeypatch):
    started.progress.update("hello", state="done")
    certificate = learn("status", "--json").output
    assert json.loads(certificate)["done"] == 1
    (tmp_path / "ana.json").write_text(certificate)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="--answers and --unprotected are for --verify FILE"):
        learn("status", "--answers", "answers")


def test_a_course_that_moved_is_named_once(started, tmp_path):
    (tmp_path / "tiny").rename(tmp_path / "moved")
    with pytest.raises(ValueError, match="if it has moved: regard learn --course FOLDER"):
        learn("list")
    assert "A tiny course" in learn("--course", "../moved", "list").output
    assert "A tiny course" in learn("list").output


def test_lists_hints_and_certificates_do_not_wait_for_torch(started):
    code = (
        "import sys; from regard.cli import app\n"
        "for words in (['list'], ['hint', 'twice'], ['status'], ['status', '--json'], ['solution', 'twice', "
        "'--give-up'],\n"
        "              ['reset', 'twice', '--yes'], ['start', '.', '--course', '../tiny']):\n"
        "    app(['learn', *words], standalone_mode=False)\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


@pytest.mark.parametrize(
    "command", ["", "start", "watch", "run", "hint", "list", "reset", "status", "verify", "solution"]
)
def test_every_help_keeps_to_80_columns_and_names_defaults(command):
    result = learn(*filter(None, [command]), "--help")
    assert result.exit_code == 0
    assert max(map(len, result.output.splitlines())) <= 80
    assert "[default: (" not in result.output

"""`regard grade` as a person types it."""

import json
import re

import pytest
from typer.testing import CliRunner

from regard.cli import app
from regard.school.grading.class_report import ClassReport, Grade, GradedMistake
from regard.school.grading.key import GradeKey
from regard.school.sandbox.protection import ProtectionMissing, ProtectionReport


def grade(*arguments):
    return CliRunner().invoke(app, ["grade", *map(str, arguments)])


def answer(monkeypatch, result):
    """Let the grader return or raise this; the arguments that it was called with."""
    calls = []

    def graded(*arguments, **options):
        calls.append((arguments, options))
        if isinstance(result, BaseException):
            raise result
        return result

    monkeypatch.setattr("regard.school.grading.grade.grade", graded)
    return calls


REPORT = ClassReport(
    [
        Grade("ana.py", "right", "A: causal self-attention, one head of 21"),
        Grade("ben.py", "wrong", "", (GradedMistake("no scale", "The scores are not divided.", 13),)),
    ]
)


def test_a_class_is_graded_and_written_to_files(tmp_path, monkeypatch):
    calls = answer(monkeypatch, REPORT)
    key, *files = (tmp_path / name for name in ("key.toml", "g.csv", "g.json", "g.html"))
    key.write_text('seed = 5\ntask = "causal self-attention"\n')
    flags = [part for file in files for part in (f"--{file.suffix[1:]}", file)]
    result = grade(tmp_path, "--key", key, *flags, "--time", 30, "--workers", 2)
    assert result.exit_code == 0, result.output
    (((folder, answers), options),) = calls
    assert (folder, answers) == (str(tmp_path), GradeKey(seed=5, task="causal self-attention"))
    assert {**options, "progress": None} == {
        "seconds": 30.0, "workers": 2, "unprotected": False, "progress": None,
        "out": None, "again": False, "one": False,
    }  # fmt: skip
    assert "  ✗  ben.py        no scale (line 13)" in result.output
    assert "2 submissions: 1 right, 1 wrong." in result.output
    assert files[0].read_text().splitlines()[2].startswith("ben.py,wrong,no scale,13,")
    assert json.loads(files[1].read_text())["grades"][0]["status"] == "right"
    assert f"<h1>Grades of {tmp_path.name}</h1>" in files[2].read_text()


def test_without_options_nothing_is_written(tmp_path, monkeypatch):
    calls = answer(monkeypatch, REPORT)
    result = grade(tmp_path, "--unprotected")
    assert result.exit_code == 0
    assert "Written" not in result.output
    assert calls[0][1]["unprotected"] is True


def test_the_status_is_one_when_something_could_not_be_checked(tmp_path, monkeypatch):
    answer(monkeypatch, ClassReport([Grade("ana.py", "unchecked", problem="killed: It was killed.")]))
    result = grade(tmp_path)
    assert result.exit_code == 1
    assert "?  ana.py        killed: It was killed." in result.output


def test_missing_protection_is_named_with_the_flag(tmp_path, monkeypatch):
    answer(monkeypatch, ProtectionMissing(ProtectionReport((), {"files": "Linux 5.13 or newer is needed"})))
    error = grade(tmp_path).exception
    assert isinstance(error, ValueError)
    assert re.search("Linux 5.13 or newer is needed. To run submissions without it: --unprotected", str(error))


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--time", "0"), "--time 0 must be greater than 0"),
        (("--workers", "0"), "--workers 0 must be at least 1"),
        (("--csv", "nowhere/g.csv"), "--csv nowhere/g.csv: nowhere is no folder; make it first"),
        (("--html", "."), "--html .: a folder has that name; choose another"),
        (("--again",), "--again needs --out DIR: without it, everything is checked anyway"),
    ],
)
def test_wrong_options_are_named(tmp_path, flags, says):
    assert str(grade(tmp_path, *flags).exception) == says


def test_results_go_to_a_folder_and_are_gone_on_with(tmp_path, monkeypatch):
    calls = answer(monkeypatch, REPORT)
    result = grade(tmp_path, "--out", tmp_path / "out", "--again", "--one")
    options = calls[0][1]
    assert (options["out"], options["again"], options["one"]) == (str(tmp_path / "out"), True, True)
    assert f"Written: {tmp_path}/out/grades.csv, results.json, similar.csv, feedback, gradescope" in result.output


def test_ctrl_c_says_where_the_results_are_and_how_to_go_on(tmp_path, monkeypatch):
    answer(monkeypatch, KeyboardInterrupt())
    result = grade(tmp_path, "--out", "results")
    assert "Stopped. What was checked is in results; the same command goes on from there." in result.output
    assert result.exit_code != 0
    assert "Stopped" not in grade(tmp_path).output

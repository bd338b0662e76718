import csv
import json
import os
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

import regard
from regard.school.check.learner_code.loading import read_source
from regard.school.check.verdict import Finding, Verdict
from regard.school.grading.checker import Checker, CheckerEnded
from regard.school.grading.grade import grade
from regard.school.grading.key import ClassRules, GradeKey, read_key
from regard.school.grading.results import CheckerAnswer
from regard.school.grading.similar import SimilarPair
from regard.school.sandbox.protection import ProtectionMissing, ProtectionReport
from school.grading.conftest import contents
from school.grading.submissions import RIGHT, SUBMISSIONS


@pytest.mark.slow
@pytest.mark.parametrize("name", SUBMISSIONS)
def test_every_submission_gets_its_verdict(graded, name):
    _, status, says = SUBMISSIONS[name]
    one = next(one for one in graded[2].grades if one.submission == name)
    assert (one.status, says in one.says) == (status, True), one


@pytest.mark.slow
def test_nothing_in_the_folder_changes(graded):
    folder, before, _, _ = graded
    assert contents(folder) == before


@pytest.mark.slow
def test_grades_are_in_the_order_of_names_and_progress_counts_them(graded):
    _, _, report, told = graded
    assert [one.submission for one in report.grades] == sorted(SUBMISSIONS)
    assert [(done, total) for done, total, _ in told] == [(i, 10) for i in range(1, 11)]
    assert {one.submission for _, _, one in told} == set(SUBMISSIONS)


@pytest.mark.slow
def test_the_class_summary_counts_mistakes(graded):
    counts = {name: len(who) for name, who in graded[2].mistakes}
    assert (counts["does not run"], counts["no scale"], counts["no causal mask"]) == (1, 2, 1)


@pytest.mark.slow
def test_a_folder_without_submissions_says_what_is_missing(tmp_path):
    with pytest.raises(
        ValueError, match=r"has no submissions: no \.py or \.ipynb file, no \.zip, and no folder with one"
    ):
        grade(tmp_path)
    with pytest.raises(ValueError, match="is no folder; give the folder that holds the submissions"):
        grade(tmp_path / "nowhere")


@pytest.mark.slow
def test_an_exercise_that_cannot_be_used_is_refused_before_anything_runs(tmp_path):
    folder, path = tmp_path / "class", tmp_path / "exercise.py"
    folder.mkdir()
    (folder / "ana.py").write_text("n = 3")
    with pytest.raises(ValueError, match=r"exercise.py does not exist"):
        grade(folder, GradeKey(exercise=str(path)))
    text = 'from regard.school.exercises import Question\nparts = [Question("n", 3, {3: "No."})]\n'
    path.write_text(f'"""Three."""\n{text}')
    with pytest.raises(
        ValueError, match=r"exercise.py cannot be used: n: because has a reason against 3, which is right"
    ):
        grade(folder, GradeKey(exercise=str(path)))
    with pytest.raises(ValueError, match=r"is in the folder of the submissions, .*; put it elsewhere"):
        grade(tmp_path, GradeKey(exercise=str(path)))


@pytest.mark.slow
def test_options_are_checked(tmp_path):
    with pytest.raises(ValueError, match=r"seconds \(0\) must be greater than 0"):
        grade(tmp_path, seconds=0)
    with pytest.raises(ValueError, match=r"workers \(0\) must be at least 1"):
        grade(tmp_path, workers=0)


@pytest.mark.slow
def test_a_missing_layer_of_protection_is_raised(tmp_path, monkeypatch):
    (tmp_path / "ana.py").write_text(RIGHT)

    def start(checker):
        raise ProtectionMissing(ProtectionReport((), {"files": "Linux 5.13 or newer is needed"}))

    monkeypatch.setattr(Checker, "start", start)
    with pytest.raises(ProtectionMissing, match=r"Linux 5\.13 or newer is needed"):
        grade(tmp_path)


@pytest.mark.slow
def test_a_checker_that_does_not_start_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("regard.school.grading.checker.START", "")
    (tmp_path / "ana.py").write_text(RIGHT)
    with pytest.raises(CheckerEnded, match="its process ended"):
        grade(tmp_path)


@pytest.fixture
def fake(monkeypatch):
    """A checker without a process: what it was asked, and what it answers or raises for a name."""
    asked, answers = [], {}

    def check(self, path):
        asked.append(path.name)
        if isinstance(answer := answers.get(path.name, []), BaseException):
            raise answer
        verdicts = [Verdict("A", "self-attention", answer).as_json() | {"text": "  A"} for _ in self.options["keys"]]
        return CheckerAnswer([[one] for one in verdicts], list(range(40)), 0.25, self.options["seconds"])

    monkeypatch.setattr(Checker, "check", check)
    return asked, answers


NO_SCALE = [Finding("no scale", "The scores are not divided.", step="scaled", line=7)]
POINTS = GradeKey(points=10, rubric={"scores": 3, "mask": 2})


def make_class(folder, *names):
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_text(f"# {name}\n")
    return folder


def files(folder):
    """Everything but the state, which has times in it."""
    return {name: data for name, data in contents(folder).items() if not name.startswith("state/")}


def test_points_are_by_task_and_part(tmp_path, fake):
    _, answers = fake
    answers["ben.py"] = NO_SCALE
    folder = make_class(tmp_path / "class", "ana.py", "ben.py")
    key = GradeKey(tasks=(replace(POINTS, title="A"), GradeKey(title="B", points=5)))
    report = grade(folder, key)
    assert report.has_points
    assert [(one.submission, one.points, one.of) for one in report.grades] == [("ana.py", 15, 15), ("ben.py", 4, 15)]
    assert [one.points for one in report.grades[1].scores] == [4.0, 0.0]
    assert report.similar == [SimilarPair("ana.py", "ben.py", 100)]


def test_what_is_known_is_not_checked_again(tmp_path, fake):
    asked, _ = fake
    folder = make_class(tmp_path / "class", "ana.py", "ben.py", "cleo.py")
    grade(folder, POINTS, out=tmp_path / "out")
    assert sorted(asked) == ["ana.py", "ben.py", "cleo.py"]
    first = files(tmp_path / "out")
    asked.clear()
    told = []
    report = grade(folder, POINTS, out=tmp_path / "out", progress=lambda *one: told.append(one[:2]))
    assert (asked, told, len(report.grades)) == ([], [], 3)
    assert files(tmp_path / "out") == first
    (folder / "ben.py").write_text("# another\n")
    grade(folder, POINTS, out=tmp_path / "out", progress=lambda *one: told.append(one[:2]))
    assert (asked, told) == (["ben.py"], [(3, 3)])
    grade(folder, POINTS, out=tmp_path / "out", again=True)
    assert sorted(asked[1:]) == ["ana.py", "ben.py", "cleo.py"]


def test_other_points_need_no_new_check(tmp_path, fake):
    asked, answers = fake
    answers["ben.py"] = NO_SCALE
    folder = make_class(tmp_path / "class", "ben.py")
    assert grade(folder, POINTS, out=tmp_path / "out").grades[0].points == 4.0
    changed = replace(POINTS, points=100)
    assert grade(folder, changed, out=tmp_path / "out").grades[0].points == 40.0
    assert asked == ["ben.py"]


def test_an_interrupted_run_loses_nothing_and_goes_on(tmp_path, fake):
    asked, answers = fake
    folder = make_class(tmp_path / "class", "ana.py", "ben.py", "cleo.py", "dan.py")
    answers |= {"ben.py": NO_SCALE, "cleo.py": KeyboardInterrupt()}
    with pytest.raises(KeyboardInterrupt):
        grade(folder, POINTS, out=tmp_path / "out", workers=1)
    rows = list(csv.DictReader((tmp_path / "out" / "grades.csv").read_text().splitlines()))
    assert [(row["submission"], row["status"], row["problem"]) for row in rows] == [
        ("ana.py", "right", ""),
        ("ben.py", "wrong", ""),
        ("cleo.py", "unchecked", "not graded yet; run the same command again"),
        ("dan.py", "unchecked", "not graded yet; run the same command again"),
    ]
    assert sorted(path.name for path in (tmp_path / "out" / "feedback").iterdir()) == ["ana.md", "ben.md"]
    del answers["cleo.py"]
    asked.clear()
    grade(folder, POINTS, out=tmp_path / "out", workers=1)
    assert asked == ["cleo.py", "dan.py"]
    grade(folder, POINTS, out=tmp_path / "other")
    assert files(tmp_path / "out") == files(tmp_path / "other")


def test_grades_are_written_while_others_are_checked(tmp_path, fake, monkeypatch):
    monkeypatch.setattr("regard.school.grading.grade.WRITE_EVERY", 0.0)
    seen = []

    def look(done, total, last):
        rows = list(csv.DictReader((tmp_path / "out" / "grades.csv").read_text().splitlines()))
        seen.append([row["status"] for row in rows])

    grade(make_class(tmp_path / "class", "ana.py", "ben.py"), POINTS, out=tmp_path / "out", workers=1, progress=look)
    assert seen == [["right", "unchecked"], ["right", "right"]]


def test_nothing_is_checked_where_the_results_cannot_be_written(tmp_path, fake):
    asked, _ = fake
    folder = make_class(tmp_path / "class", "ana.py")
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"file cannot be made: Not a directory; choose another folder"):
        grade(folder, POINTS, out=tmp_path / "file")
    with pytest.raises(ValueError, match=r"class/out is in the folder of the submissions"):
        grade(folder, POINTS, out=folder / "out")
    assert asked == []


def test_one_submission_is_a_folder_or_a_file(tmp_path, fake):
    asked, _ = fake
    folder = make_class(tmp_path / "submission", "ana.py", "helper.py")
    report = grade(folder, POINTS, out=tmp_path / "out", one=True)
    assert [one.submission for one in report.grades] == asked == ["submission"]
    assert json.loads((tmp_path / "out" / "gradescope" / "results.json").read_text())["score"] == 10.0
    assert grade(folder / "ana.py", POINTS, one=True).grades[0].submission == "ana.py"


def test_starter_code_and_ignored_files_are_known_to_the_report(tmp_path, fake, monkeypatch):
    (tmp_path / "starter.py").write_text("x = 3\n")
    monkeypatch.setattr("regard.school.grading.grade.fingerprints", lambda source: list(range(len(source) * 5)))
    folder = make_class(tmp_path / "class", "ana.py", "ben.py", ".DS_Store")
    report = grade(folder, replace(POINTS, rules=ClassRules(starter=str(tmp_path / "starter.py"))))
    assert (report.ignored, report.similar) == ([".DS_Store"], [])


def test_a_rubric_of_an_exercise_names_its_parts(tmp_path, fake):
    folder = make_class(tmp_path / "class", "ana.py")
    path = tmp_path / "exercise.py"
    path.write_text(
        '"""N."""\nfrom regard.school.exercises import Question\nparts = [Question("n", 3), Question("m", 5)]\n'
    )
    assert grade(folder, GradeKey(exercise=str(path), rubric={"n": 1, "m": 2})).grades[0].points == 3.0
    with pytest.raises(ValueError, match=r"rubric \(m, n\) must name parts of .*exercise\.py, in their order: n, m"):
        grade(folder, GradeKey(exercise=str(path), rubric={"m": 1, "n": 2}))


@pytest.mark.slow
def test_an_entry_that_is_no_submission_gets_a_grade_with_the_reason(tmp_path):
    folder = make_class(tmp_path / "class", "notes.txt")
    (folder / "empty").mkdir()
    (folder / "ana.PY").write_text(RIGHT)
    with zipfile.ZipFile(folder / "ben.zip", "w") as archive:
        archive.writestr("ben/homework.py", RIGHT)
    kinds = ".py, .ipynb or .zip file and no folder"
    try:
        report = grade(folder)
    except ProtectionMissing as error:
        pytest.skip(str(error))
    assert [(one.submission, one.status, one.problem) for one in report.grades] == [
        ("ana.PY", "right", ""),
        ("ben.zip", "right", ""),
        ("empty", "unchecked", "empty has no Python file and no notebook; hand in a .py or .ipynb file"),
        ("notes.txt", "unchecked", f"notes.txt is no {kinds}; rename it, or move it elsewhere"),
    ]


@pytest.mark.slow
def test_a_notebook_is_graded_like_a_file(tmp_path):
    cell = {"cell_type": "code", "source": RIGHT.splitlines(keepends=True), "metadata": {}, "outputs": []}
    folder = make_class(tmp_path / "class")
    text = json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    (folder / "ana.ipynb").write_text(text)
    try:
        read_source(folder / "ana.ipynb")
        report = grade(folder, GradeKey(task="causal self-attention"))
    except (ValueError, ProtectionMissing) as error:
        pytest.skip(str(error))
    assert [(one.submission, one.status) for one in report.grades] == [("ana.ipynb", "right")]


EXAMPLE = Path(__file__).parents[3] / "docs" / "grading" / "example"


@pytest.mark.slow
def test_the_example_folder_has_the_grades_of_its_page_and_the_same_on_every_run(tmp_path):
    key = read_key(EXAMPLE / "key.toml")
    try:
        grade(EXAMPLE / "submissions", key, out=tmp_path / "one")
    except ProtectionMissing as error:
        pytest.skip(str(error))
    assert (tmp_path / "one" / "grades.csv").read_text() == (EXAMPLE / "grades.csv").read_text()
    grade(EXAMPLE / "submissions", key, out=tmp_path / "other", workers=1)
    assert files(tmp_path / "one") == files(tmp_path / "other")
    assert sorted(os.listdir(tmp_path / "one" / "feedback")) == ["ana.md", "ben.md", "cleo.md", "dan.md"]


@pytest.mark.slow
def test_the_script_for_gradescope_leaves_its_results_where_they_are_looked_for(tmp_path):
    for name in ("submission", "source", "results"):
        (tmp_path / name).mkdir()
    (tmp_path / "submission" / "attention.py").write_text(RIGHT)
    (tmp_path / "source" / "key.toml").write_text('name = "CausalAttention"\n[rubric]\nscores = 3\nmask = 2\n')
    environment = {**os.environ, "AUTOGRADER": str(tmp_path), "PYTHONPATH": str(Path(regard.__file__).parents[1])}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    done = subprocess.run(["bash", EXAMPLE / "run_autograder"], env=environment, capture_output=True, text=True)
    if "--unprotected" in done.stderr:
        pytest.skip(done.stderr)
    results = json.loads((tmp_path / "results" / "results.json").read_text())
    assert (results["score"], results["output"]) == (5.0, "Right.")
    names = [(one["name"], one["score"], one["status"]) for one in results["tests"]]
    assert names == [("CausalAttention: scores", 3.0, "passed"), ("CausalAttention: mask", 2.0, "passed")]

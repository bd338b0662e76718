import sys
from pathlib import Path

import pytest

from regard.school.grading.grade import Checker, CheckerEnded, find_submissions, grade
from regard.school.grading.key import GradeKey
from regard.school.sandbox.protection import ProtectionMissing, ProtectionReport
from school.grading.conftest import contents
from school.grading.submissions import RIGHT, SUBMISSIONS

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", SUBMISSIONS)
def test_every_submission_gets_its_verdict(graded, name):
    _, status, says = SUBMISSIONS[name]
    one = next(one for one in graded[2].grades if one.submission == name)
    assert (one.status, says in one.says) == (status, True), one


def test_nothing_in_the_folder_changes(graded):
    folder, before, _, _ = graded
    assert contents(folder) == before


def test_grades_are_in_the_order_of_names_and_progress_counts_them(graded):
    _, _, report, told = graded
    assert [one.submission for one in report.grades] == sorted(SUBMISSIONS)
    assert [(done, total) for done, total, _ in told] == [(i, 10) for i in range(1, 11)]
    assert {one.submission for _, _, one in told} == set(SUBMISSIONS)


def test_the_class_summary_counts_mistakes(graded):
    counts = {name: len(who) for name, who in graded[2].mistakes}
    assert counts["does not run"] == 2
    assert counts["no scale"] == 1


def test_submissions_are_files_and_folders_with_python(tmp_path):
    others = (".hidden.py", "notes.txt", "__pycache__/c.py", "__MACOSX/c.py", "empty/notes.txt")
    for name in ("b.py", "__d__.py", "a/homework.py", *others):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
    assert [path.name for path in find_submissions(tmp_path)] == ["__d__.py", "a", "b.py"]


def test_a_folder_without_submissions_says_what_is_missing(tmp_path):
    with pytest.raises(ValueError, match=r"has no submissions: no \.py file, and no folder with one"):
        grade(tmp_path)
    with pytest.raises(ValueError, match="is no folder; give the folder that holds the submissions"):
        grade(tmp_path / "nowhere")


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


def test_options_are_checked(tmp_path):
    with pytest.raises(ValueError, match=r"seconds \(0\) must be greater than 0"):
        grade(tmp_path, seconds=0)
    with pytest.raises(ValueError, match=r"workers \(0\) must be at least 1"):
        grade(tmp_path, workers=0)


def test_a_missing_layer_of_protection_is_raised(tmp_path, monkeypatch):
    (tmp_path / "ana.py").write_text(RIGHT)

    def start(checker):
        raise ProtectionMissing(ProtectionReport((), {"files": "Linux 5.13 or newer is needed"}))

    monkeypatch.setattr(Checker, "start", start)
    with pytest.raises(ProtectionMissing, match=r"Linux 5\.13 or newer is needed"):
        grade(tmp_path)


def scripted(monkeypatch, script):
    """Checkers whose process is this script; its second start, too."""
    monkeypatch.setattr("regard.school.grading.grade.START", script)
    monkeypatch.setattr("regard.school.grading.grade.FOR_THE_CHECK", 0.1)


READY = """import sys; sys.stdin.readline(); print('{"active": [], "missing": {}, "refused": false}', flush=True)
line = sys.stdin.readline()
"""


@pytest.mark.parametrize(
    ("then", "why"), [("", "its process ended"), ("import time; time.sleep(60)", "it did not answer within 0.2 s")]
)
def test_a_check_that_ends_or_hangs_is_one_submissions_loss(tmp_path, monkeypatch, then, why):
    right = """import json; v = {"status": "right", "findings": [], "name": "A", "task": "attention", "problem": ""}
if "ana" in line: print(json.dumps([v]), flush=True)
else:
    pass
"""
    scripted(monkeypatch, f"{READY}{right}    {then}\n")
    for name in ("ana.py", "ben.py"):
        (tmp_path / name).write_text("")
    checker = Checker({"seconds": 0.1}, tmp_path)
    checker.start()
    bad = checker.check(tmp_path / "ben.py")
    good = checker.check(tmp_path / "ana.py")
    checker.close()
    assert (bad.status, bad.problem) == ("unchecked", f"the check itself ended: {why}; check it by hand")
    assert (good.status, good.says) == ("right", "A: attention")


def test_a_checker_that_does_not_start_says_so(tmp_path, monkeypatch):
    scripted(monkeypatch, "")
    (tmp_path / "ana.py").write_text(RIGHT)
    with pytest.raises(CheckerEnded, match="its process ended"):
        grade(tmp_path)


def test_a_checker_imports_nothing_from_the_folder_or_the_current_one(tmp_path, monkeypatch):
    from regard.school.grading.grade import _import_path

    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr(sys, "path", ["", ".", str(here), str(tmp_path), *sys.path])
    path = _import_path(tmp_path)
    assert {"", ".", str(here), str(tmp_path)} & set(path) == set()
    assert Path(path[0], "regard").is_dir()


def test_a_checker_that_is_killed_leaves_no_folder(tmp_path, monkeypatch):
    code = (
        "from regard.school.sandbox.folders import temporary_folder\nwith temporary_folder() as f: print(f, "
        "file=open(line[1:-2], 'w'), flush=True); input()"
    )
    scripted(monkeypatch, f"import sys; sys.path[:] = sys.argv[1:]\n{READY}{code}\n")
    note = tmp_path / "note"
    checker = Checker({"seconds": 5.0}, tmp_path)
    checker.start()
    assert "it did not answer" in checker.check(note).problem
    assert not Path(note.read_text().strip()).exists()

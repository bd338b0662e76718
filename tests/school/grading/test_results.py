import json
import os
from dataclasses import replace

import pytest

from regard.school.check.verdict import Finding, Verdict
from regard.school.grading.class_report import ClassReport, Grade
from regard.school.grading.key import GradeKey
from regard.school.grading.results import CheckerAnswer, ResultsFolder, feedback, file_names, gradescope
from regard.school.grading.rubric import PartScore, TaskScore
from regard.school.grading.similar import SimilarPair
from school.grading.hostile_files import NAMES

SCORE = TaskScore(
    "A",
    (
        PartScore("scores", "wrong", 0.0, 3.0, "no scale (line 7)"),
        PartScore("mask", "right", 2.0, 2.0),
        PartScore("merge", "not reached", 0.0, 1.0),
    ),
    "  ✗ A: no scale\n\n    <b>why</b>",
)
GRADE = Grade("ana.py", "wrong", scores=(SCORE,), points=1.8, open=1.0, notes=("1 day late, 0 free: −10 %",))
ANSWER = CheckerAnswer([[Verdict("A", "attention", [Finding("no scale", "")]).as_json()]], [3, 7], 1.5, 10.0)


@pytest.fixture
def results(tmp_path):
    (tmp_path / "class").mkdir()
    (tmp_path / "class" / "ana.py").write_text("x = 3\n")
    return ResultsFolder(tmp_path / "out", GradeKey(seed=7), tmp_path / "class")


def test_an_answer_is_known_again_until_the_submission_or_the_question_changes(results, tmp_path):
    path = tmp_path / "class" / "ana.py"
    assert results.saved("ana", path, 10.0) is None
    results.save("ana", path, ANSWER)
    assert results.saved("ana", path, 10.0) == ANSWER
    others = {"points": 9, "rubric": {"mask": 1}, "title": "B"}
    assert (
        ResultsFolder(tmp_path / "out", GradeKey(seed=7, **others), tmp_path / "class").saved("ana", path, 10) == ANSWER
    )
    for other in (GradeKey(seed=8), GradeKey(seed=7, name="A"), GradeKey(tasks=(GradeKey(), GradeKey(title="b")))):
        assert ResultsFolder(tmp_path / "out", other, tmp_path / "class").saved("ana", path, 10.0) is None
    path.write_text("x = 4\n")
    assert results.saved("ana", path, 10.0) is None


def test_a_new_version_of_regard_checks_everything_again(results, tmp_path, monkeypatch):
    path = tmp_path / "class" / "ana.py"
    results.save("ana", path, ANSWER)
    monkeypatch.setattr("regard.school.grading.results.version", lambda name: "9.9")
    assert ResultsFolder(tmp_path / "out", GradeKey(seed=7), tmp_path / "class").saved("ana", path, 10.0) is None


def test_what_was_out_of_time_is_tried_again_with_more_time(results, tmp_path):
    late = replace(ANSWER, tasks=[[Verdict("A", "", problem="out of time: It did not end.").as_json()]])
    results.save("ana", tmp_path / "class" / "ana.py", late)
    assert results.saved("ana", tmp_path / "class" / "ana.py", 10.0) == late
    assert results.saved("ana", tmp_path / "class" / "ana.py", 11.0) is None


def test_a_failure_of_the_checker_is_not_kept(results, tmp_path):
    results.save("ana", tmp_path / "class" / "ana.py", replace(ANSWER, is_final=False))
    assert list((tmp_path / "out" / "state").iterdir()) == []


@pytest.mark.parametrize("text", ["", "{", "{}", '{"hash": "", "answer": {}}', "[" * 100_000])
def test_a_broken_state_is_no_state(results, tmp_path, text):
    (tmp_path / "out" / "state" / "ana.json").write_text(text)
    assert results.saved("ana", tmp_path / "class" / "ana.py", 10.0) is None


def test_a_hash_has_every_file_of_a_folder_and_follows_no_link(results, tmp_path):
    folder = tmp_path / "class" / "ben"
    (folder / "lib").mkdir(parents=True)
    (folder / "lib" / "a.py").write_text("x")
    seen = [results.digest(folder)]
    (folder / "lib" / "a.py").rename(folder / "lib" / "b.py")
    seen.append(results.digest(folder))
    (folder / "link").symlink_to("/etc/passwd")
    seen.append(results.digest(folder))
    os.mkfifo(folder / "fifo")
    seen.append(results.digest(folder))
    assert len(set(seen)) == 4
    assert "" not in seen
    with (folder / "sparse.py").open("wb") as file:
        file.truncate(20 << 30)
    assert results.digest(folder) == results.digest(tmp_path / "nowhere.py") == ""


def test_an_exercise_is_part_of_the_question(tmp_path):
    (tmp_path / "class").mkdir()
    (tmp_path / "class" / "ana.py").write_text("x = 3\n")
    digests = set()
    for text in ("parts = []", "parts = [] "):
        (tmp_path / "exercise.py").write_text(text)
        one = ResultsFolder(tmp_path / "out", GradeKey(exercise=str(tmp_path / "exercise.py")), tmp_path / "class")
        digests.add(one.digest(tmp_path / "class" / "ana.py"))
    assert len(digests) == 2


def test_a_folder_that_cannot_be_written_is_said_first(tmp_path):
    (tmp_path / "class").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"file/out cannot be made: Not a directory; choose another folder"):
        ResultsFolder(tmp_path / "file" / "out", GradeKey(), tmp_path / "class")
    with pytest.raises(ValueError, match=r"class/out is in the folder of the submissions, .*; put it elsewhere"):
        ResultsFolder(tmp_path / "class" / "out", GradeKey(), tmp_path / "class")
    (tmp_path / "out" / "grades.csv").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"grades\.csv: a folder has that name; choose another"):
        ResultsFolder(tmp_path / "out", GradeKey(), tmp_path / "class")


FEEDBACK = """# ana

1.8 of 6 points. Not right yet.

1 day late, 0 free: −10 %.

## A: 2 of 6

| part | points | of | |
| --- | --- | --- | --- |
| scores | 0 | 3 | no scale \\(line 7\\) |
| mask | 2 | 2 |  |
| merge | 0 | 1 | not reached |

      ✗ A: no scale

        <b>why</b>
"""


def test_feedback_says_what_is_right_and_why_the_rest_is_not():
    assert feedback(GRADE) == FEEDBACK


def test_feedback_without_points_has_the_verdict_alone():
    plain = replace(GRADE, scores=(TaskScore("A", (PartScore("all", "right", 1.0, 1.0),), "  ✓ A"),), status="right")
    assert feedback(replace(plain, notes=()), False) == "# ana\n\nRight.\n\n## A\n\n      ✓ A\n"


def test_feedback_shows_what_was_changed_by_hand_and_holds_no_markup_of_a_submission():
    odd = replace(GRADE, submission="<img src=x>*|`.py", override="points 5, not 2: oral exam", scores=(), notes=())
    text = feedback(replace(odd, status="unchecked"))
    assert text.splitlines()[0] == "# &lt;img src=x&gt;\\*\\|\\`"
    assert "Changed by hand: points 5, not 2: oral exam." in text


def test_gradescope_gets_a_test_for_each_part():
    assert gradescope(replace(GRADE, override="A 2, not 0: x")) == {
        "score": 1.8,
        "output": "Not right yet.\n1 day late, 0 free: −10 %\nchanged by hand: A 2, not 0: x\n"
        "1 points were not checked: not reached",
        "output_format": "text",
        "tests": [
            {"name": "A: scores", "score": 0.0, "max_score": 3.0, "status": "failed",
             "output": f"wrong: no scale (line 7)\n\n{SCORE.text}"},
            {"name": "A: mask", "score": 2.0, "max_score": 2.0, "status": "passed", "output": ""},
            {"name": "A: merge", "score": 0.0, "max_score": 1.0, "status": "failed", "output": "not reached"},
        ],
    }  # fmt: skip


def test_everything_is_in_its_file(results, tmp_path):
    report = ClassReport([GRADE], has_points=True, similar=[SimilarPair("=ana.py", "ben.py", 91)])
    results.write_student("ana", GRADE)
    results.write_class(report)
    out = tmp_path / "out"
    assert (out / "feedback" / "ana.md").read_text() == feedback(GRADE, has_points=False)
    assert json.loads((out / "gradescope" / "ana" / "results.json").read_text()) == gradescope(GRADE)
    assert (out / "grades.csv").read_text() == report.as_csv(times=False)
    assert json.loads((out / "results.json").read_text()) == json.loads(json.dumps(report.as_json(times=False)))
    assert (out / "similar.csv").read_text() == "submission,similar to,look yourself\n'=ana.py,ben.py,91 %\n"


def test_one_submission_has_its_gradescope_file_where_a_script_finds_it(tmp_path):
    (tmp_path / "class").mkdir()
    ResultsFolder(tmp_path / "out", GradeKey(), tmp_path / "class", one=True).write_student("class", GRADE)
    assert (tmp_path / "out" / "gradescope" / "results.json").is_file()


def test_files_are_named_after_students_and_no_two_are_the_same():
    names = ["ana.py", "ana.ipynb", "Ben.py", "ben.zip", "cleo", "../x.py", "\x1b\n", "n" * 300, "s17.py"]
    names += [f"{name}.py" for name in NAMES]
    files = file_names(names, {"s17.py": "Dora"})
    assert (files["cleo"], files["s17.py"]) == ("cleo", "Dora")
    assert files["ana.py"].startswith("ana-")
    assert len({one.casefold() for one in files.values()}) == len(names)
    assert all("/" not in one and one.isprintable() and not one.startswith(".") for one in files.values())
    assert max(len(os.fsencode(one)) for one in files.values()) < 200

"""Answers that import others of the learner's files: those must be right first."""

import pytest
from tiny_course import write_course

from regard.school.course.answers import AnswerChecker
from regard.school.course.courses import read_course
from regard.school.course.learner import start_folder
from regard.school.course.own_files import files_beside, used_files
from regard.school.course.verification import verify_lesson
from regard.school.exercises.exercise import load_exercise

MINE = '(path,) = Path(__file__).parent.glob("*_twice.py")\n'
ANSWER = (
    f'"""Four times a number."""\nfrom importlib import import_module\nfrom pathlib import Path\n\n{MINE}'
    "twice = import_module(path.stem).twice\n\n\ndef four_times(x):\n    return {}\n"
)
WAY = "Another way, {0}:\n\n```python\ndef four_times(x):\n    return {1}\n```\n\n"
FOUR = {
    "course.toml": 'title = "T"\n[[chapter]]\ntitle = "C"\nexercises = ["hello", "twice", "choose", "four"]\n',
    "four/start.py": ANSWER.format("..."),
    "four/solution.py": ANSWER.format("twice(twice(x))"),
    "four/exercise.py": '"""Four times."""\nfrom regard.school.exercises import Function, Wrong\n\nuses = ["twice"]\n'
    'parts = [Function("four_times", lambda random: (3,), lambda x: 4 * x, [\n'
    '    Wrong("six", "Six times.", lambda x: 6 * x), Wrong("two", "Twice.", lambda x: 2 * x),\n'
    '    Wrong("x", "x.", lambda x: x)])]\n',
    "four/words.md": "# where\nHere.\n\n# why\nSo.\n\n# almost\nTwo of them.\n\n# after\n\nGood.\n\n"
    + WAY.format("a sum", "twice(x) + twice(x)")
    + WAY.format("a product", "2 * twice(x)")
    + "Next: nothing.\n",
    "four/wrong.txt": "# six\n\n@ six\n- twice(twice(x))\n+ 3 * twice(x)\n\n# two\n\n@ two\n- twice(twice(x))\n"
    "+ twice(x)\n\n# x\n\n@ x\n- twice(twice(x))\n+ x\n",
}
TWICE = "def twice(x):\n    return x + x\n"


@pytest.fixture
def four(tmp_path):
    return start_folder(tmp_path / "answers", read_course(write_course(tmp_path / "four", FOUR)))[0]


@pytest.fixture(scope="module")
def checker():
    with AnswerChecker() as checker:
        yield checker


def written(learner, twice=TWICE):
    course = learner.course
    learner.file_of(course.lesson("twice")).write_text(twice)
    learner.file_of(course.lesson("four")).write_text(ANSWER.format("twice(twice(x))"))
    return course.lesson("four"), learner.file_of(course.lesson("four"))


def test_an_answer_runs_with_the_learners_own_files(four, checker):
    assert checker.check(*written(four)).verdict.is_right


def test_a_wrong_file_that_is_imported_is_named_with_its_mistake_and_what_to_do(four, checker):
    verdict = checker.check(*written(four, "def twice(x):\n    return x * x\n")).verdict
    assert (verdict.name, verdict.mistakes[0].name) == ("02_twice.py", "squared")
    assert verdict.notes == ["04_four.py imports it. Mend it first: regard learn watch twice"]


def test_a_file_that_was_right_is_checked_again_when_it_changes(four, checker):
    assert checker.check(*written(four)).verdict.is_right
    assert not checker.check(*written(four, "def twice(x):\n    return x\n")).verdict.is_right


def test_a_file_that_is_missing_is_named(four, checker):
    lesson, path = written(four)
    four.file_of(four.course.lesson("twice")).unlink()
    verdict = checker.check(lesson, path).verdict
    assert (
        verdict.problem
        == "it imports your file for twice, which is not there; write it again: regard learn reset twice"
    )


def test_the_start_is_checked_without_the_other_files(four, checker):
    lesson = four.course.lesson("four")
    four.file_of(lesson).write_text(lesson.text("start.py"))
    assert checker.check(lesson, four.file_of(lesson)).verdict.mistakes[0].name == "not written yet"


def test_other_peoples_answers_run_with_their_files_in_the_sandbox(four):
    with AnswerChecker(confined=True) as confined:
        assert confined.check(*written(four)).verdict.is_right


def test_in_a_review_the_files_are_in_the_folder_above(four, checker):
    lesson, path = written(four)
    (path.parent / "review").mkdir()
    review = path.parent / "review" / "01_four.py"
    review.write_text(path.read_text())
    exercise = load_exercise(lesson.folder)
    assert used_files(exercise, review) == {"twice": path.parent / "02_twice.py"}
    assert checker.check(lesson, review).verdict.is_right


def test_an_answer_that_imports_nothing_needs_no_folder(four):
    lesson = four.course.lesson("twice")
    with files_beside(load_exercise(lesson.folder), four.file_of(lesson)) as folder:
        assert folder is None


def test_a_course_checks_such_an_exercise_with_the_solutions_of_the_others(four, checker):
    report = verify_lesson(four.course.lesson("four"), checker)
    assert (report.faults, report.wrong, report.ways) == ([], 3, 2)


def test_an_exercise_that_uses_what_is_not_there_is_refused(tmp_path):
    folder = write_course(
        tmp_path / "four", FOUR | {"four/exercise.py": FOUR["four/exercise.py"].replace('"twice"', '"x"')}
    )
    with pytest.raises(ValueError, match="uses x, which is no exercise beside it"):
        load_exercise(folder / "four")

"""Where everybody in a class is, and which mistakes are common."""

from dataclasses import replace

import pytest
from tiny_course import write_course

from regard.school.course.answers import AnswerChecker
from regard.school.course.class_overview import common_mistakes, read_class, with_mistakes
from regard.school.course.courses import read_course
from regard.school.course.learner import start_folder


@pytest.fixture(scope="module")
def checker():
    with AnswerChecker(confined=True) as checker:
        yield checker


def hand_in(folder, course, twice, done=("hello",)):
    """Somebody's folder, with an answer to `twice` that was tried once."""
    learner = start_folder(folder / "attention-course", course)[0]
    for name in done:
        learner.note_checked(course.lesson(name), b"", True)
    if twice:
        learner.file_of(course.lesson("twice")).write_text(twice)
        learner.note_checked(course.lesson("twice"), twice.encode(), False)


@pytest.fixture
def a_class(tmp_path, course):
    folder = tmp_path / "class"
    hand_in(folder / "ada", course, "def twice(x):\n    return x * x\n")
    hand_in(folder / "ben", course, "def twice(x):\n    y = x**2\n    return y\n")
    hand_in(folder / "cleo", course, "", done=("hello", "twice", "choose"))
    hand_in(folder / "dora", course, "")
    (folder / "emil" / "pictures").mkdir(parents=True)
    return folder


def test_every_folder_is_a_student_and_every_exercise_has_a_state(a_class, course):
    members = read_class(a_class, course)
    assert [(one.name, one.states, one.current, one.attempts) for one in members] == [
        ("ada", ("done", "now", ""), "twice", 1),
        ("ben", ("done", "now", ""), "twice", 1),
        ("cleo", ("done", "done", "done"), "", 0),
        ("dora", ("done", "now", ""), "twice", 0),
        ("emil", (), "", 0),
    ]
    assert members[-1].problem == "no progress.txt; not started, or not handed in"


def test_the_mistakes_in_what_they_work_on_are_counted(a_class, course, checker):
    members = [with_mistakes(one, course, checker) for one in read_class(a_class, course)]
    assert [one.mistakes for one in members] == [("squared",), ("squared",), (), (), ()]
    assert common_mistakes(members) == [("twice", "squared", ["ada", "ben"])]


def test_an_answer_that_is_right_but_was_not_checked_is_no_mistake(a_class, course, checker):
    hand_in(a_class / "fred", course, "def twice(x):\n    return x + x\n")
    fred = next(one for one in read_class(a_class, course) if one.name == "fred")
    assert with_mistakes(fred, course, checker).mistakes == ("right, not checked by them yet",)


def test_links_out_of_the_class_are_not_followed(a_class, course, checker, tmp_path):
    secret = tmp_path / "secret.py"
    secret.write_text("def twice(x):\n    return x * x\n")
    answer = a_class / "ada" / "attention-course" / "02_twice.py"
    answer.unlink()
    answer.symlink_to(secret)
    ada = read_class(a_class, course)[0]
    assert with_mistakes(ada, course, checker).mistakes == ("no file 02_twice.py",)
    (a_class / "gil").mkdir()
    (a_class / "gil" / "attention-course").symlink_to(a_class / "cleo" / "attention-course")
    assert next(one for one in read_class(a_class, course) if one.name == "gil").problem.startswith("no progress.txt")


def test_two_courses_in_one_folder_and_a_huge_progress_file_are_said(a_class, course):
    start_folder(a_class / "ada" / "again", course)
    with (a_class / "ben" / "attention-course" / "progress.txt").open("a") as file:
        file.write("#" * (1 << 20))
    ada, ben = read_class(a_class, course)[:2]
    assert ada.problem == "several courses: again, attention-course"
    assert ben.problem.startswith("progress.txt has ")


def test_a_folder_without_students_says_what_it_needs(tmp_path):
    course = read_course(write_course(tmp_path / "tiny"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="holds no folders; it needs one for each student"):
        read_class(tmp_path / "empty", course)
    with pytest.raises(ValueError, match="is no folder; give the one that holds a folder for each student"):
        read_class(tmp_path / "nowhere", course)


def test_a_member_without_a_folder_is_not_run(course, checker):
    nobody = replace(read_class_of_one(course), folder=None)
    assert with_mistakes(nobody, course, checker) is nobody


def read_class_of_one(course):
    from regard.school.course.class_overview import ClassMember

    return ClassMember("ada", states=("now", "", ""), current="twice")

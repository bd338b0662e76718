"""A course as a folder."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_course import FILES, write_course

from regard.school.course.courses import WrongAnswer, files_in, read_course, read_lessons, read_wrong_answers


def test_a_course_has_its_exercises_in_the_order_of_the_file(course):
    assert course.title == "A tiny course"
    assert [(one.number, one.name, one.chapter, one.file_name) for one in course.lessons] == [
        (1, "hello", "Begin", "01_hello.py"),
        (2, "twice", "Begin", "02_twice.py"),
        (3, "choose", "End", "03_choose.py"),
    ]
    assert not course.is_own


def test_the_texts_of_an_exercise_are_read_without_running_it(course):
    lesson = course.lesson("twice")
    assert lesson.title == "Double a tensor"
    assert lesson.task == "Double a number of things.\n\nExample: twice(x) of [1, 2] is [2, 4]."
    assert lesson.hints == {
        "where": "Line 8.",
        "why": "A sum of equal parts.",
        "almost": "Use + once, and x on both sides.",
    }
    assert [(one.name, one.expected) for one in lesson.wrong] == [
        ("same", "not doubled"), ("square", "squared"), ("method", "no tensor method"),
    ]  # fmt: skip
    assert lesson.ways == {
        "by product": "def twice(x):\n    return 2 * x", "by sum of list": "def twice(x):\n    return sum([x, x])",
    }  # fmt: skip
    assert lesson.after == "2·x = x + x.\n\nNext: a question."


@pytest.mark.parametrize("typed", ["twice", "Twice", "2", "02", "02_twice", "02_twice.py", "answers/02_twice.py"])
def test_an_exercise_is_found_by_what_a_person_types(course, typed):
    assert course.lesson(typed).name == "twice"


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("twi", "did you mean twice?"),
        ("Twcie", "did you mean twice?"),
        ("rotary", "regard learn list names them"),
        ("7", "regard learn list"),
    ],
)
def test_an_unknown_exercise_is_refused_with_a_near_one(course, typed, hint):
    with pytest.raises(ValueError, match=re.escape(f"the course has no exercise {typed}; {hint}")):
        course.lesson(typed)


def toml(exercises: str, more: str = "") -> str:
    return f'title = "T"\n{more}[[chapter]]\ntitle = "C"\nexercises = {exercises}\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("title = ", "is not TOML"),
        ('[[chapter]]\ntitle = "C"\nexercises = ["twice"]\n', "needs a title"),
        ('title = "T"\n', r"needs at least one \[\[chapter\]\]"),
        (toml('["twice"]', "level = 3\n"), "level is unknown"),
        (toml("[]"), "chapter 1: title is a text, exercises a list of names"),
        (toml('["Twice"]'), "'Twice' must be lower-case letters"),
        (toml('["../twice"]'), "must be lower-case letters"),
        (toml('["twice", "hello", "twice"]'), "names twice more than once"),
        (toml('["twice", "rotary"]'), "names rotary, but there is no such folder"),
        (toml('["twice"]') + 'level = "easy"\n', "chapter 1 must have a title and exercises, and nothing else"),
    ],
)
def test_a_wrong_course_file_says_what_is_wrong(tmp_path, text, message):
    folder = write_course(tmp_path, {"course.toml": text})
    with pytest.raises(ValueError, match=message):
        read_course(folder)


def test_a_folder_without_a_course_says_so(tmp_path):
    with pytest.raises(ValueError, match=r"is no course: it has no course\.toml"):
        read_course(tmp_path)


def test_a_missing_text_and_one_that_is_no_python_say_which_file(tmp_path):
    folder = write_course(tmp_path, {"twice/words.md": None, "twice/start.py": "def twice(:\n"})
    lesson = read_course(folder).lesson("twice")
    with pytest.raises(ValueError, match=r"words\.md is missing; every exercise has one"):
        _ = lesson.hints
    with pytest.raises(ValueError, match=r"start\.py, line 1: invalid syntax"):
        _ = lesson.task


def test_the_hash_is_that_of_what_is_asked_and_checked_not_of_hints_or_wrong_answers(tmp_path):
    first, same, other, renamed = (tmp_path / name for name in ("a", "b", "c", "d"))
    write_course(first)
    words = FILES["twice/words.md"].replace("2·x = x", "2·x is x")
    write_course(same, {"twice/wrong.txt": None, "twice/words.md": words})
    write_course(other, {"twice/exercise.py": FILES["twice/exercise.py"].replace("x + x", "2 * x")})
    write_course(renamed, {"twice/start.py": None, "twice/begin.py": FILES["twice/start.py"]})
    (same / "twice" / "__pycache__").mkdir()
    (same / "twice" / "__pycache__" / "exercise.pyc").write_bytes(b"made by Python")
    (same / ".hidden").write_text("an editor's")
    hashes = [read_course(folder).hash for folder in (first, same, other, renamed)]
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 3
    assert Path("twice/exercise.py") in [path.relative_to(same) for path in files_in(same)]


def test_exercises_alone_are_a_course_of_their_own(course, tmp_path):
    alone = read_lessons([course.folder / "choose", course.folder / "twice"])
    assert [(one.number, one.name) for one in alone.lessons] == [(1, "choose"), (2, "twice")]
    with pytest.raises(ValueError, match=r"no exercise\.py in .*; give a course, or folders of exercises"):
        read_lessons([tmp_path / "nothing"])


def test_a_course_is_read_without_torch(course):
    code = (
        "import sys; from pathlib import Path; from regard.school.course.courses import read_course; "
        "import regard.school.course.learner, regard.school.drawing.lessons, regard.commands.learn; "
        "course = read_course(Path(sys.argv[1])); print(course.lesson('twice').title, len(course.hash), 'torch' in "
        "sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(course.folder)], capture_output=True, text=True, check=True)
    assert done.stdout == "Double a tensor 64 False\n"


SOLUTION = "def f(x):\n    y = x + 1\n    y = y + 1\n\n    return y\n"


def edited(body):
    return read_wrong_answers(f"# name\n\n@ one\n{body}\n", SOLUTION)[0].source


def test_names_and_sections():
    text = (
        "For people.\n\n# first\n\n@ a\n- y + 1\n+ y\n\n@ b\n- return y\n+ return x\n\n# second: 2\n\n@ c\n- x + 1\n+ "
        "x\n"
    )
    assert read_wrong_answers(text, SOLUTION) == [
        WrongAnswer("a", "first", SOLUTION.replace("y + 1", "y")),
        WrongAnswer("b", "first", SOLUTION.replace("return y", "return x")),
        WrongAnswer("c", "second: 2", SOLUTION.replace("x + 1", "x")),
    ]


def test_lines_are_replaced_where_they_occur_first_deleted_and_several_edits_follow_each_other():
    assert edited("- + 1\n+ + 2") == SOLUTION.replace("x + 1", "x + 2")
    assert edited("-     y = y + 1") == SOLUTION.replace("    y = y + 1\n", "")
    assert (
        edited("-     y = y + 1\n-\n-     return y\n+     return y + 1")
        == "def f(x):\n    y = x + 1\n    return y + 1\n"
    )
    assert edited("- x + 1\n+ x\n\n- y + 1\n+ y") == "def f(x):\n    y = x\n    y = y\n\n    return y\n"


def test_without_a_minus_it_is_the_whole_answer_and_a_comment_is_no_heading():
    assert edited("+ # another\n+ def f(x):\n+\n+     return x") == "# another\ndef f(x):\n\n    return x\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# name\n\n@ one\n- z\n+ y\n", r"wrong.txt, one: solution.py does not have: z"),
        ("# name\n\n@ one\n", r"wrong.txt, one: there is no edit; write lines that begin with - and \+"),
        ("# name\n\n@ one\n- y\ny\n", r"wrong.txt, one: 'y' begins with neither - nor \+"),
        ("#\n\n@ one\n- y\n+ x\n", r"wrong.txt, one has no name above it; write a line: # NAME"),
    ],
)
def test_what_is_not_written_so_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        read_wrong_answers(text, SOLUTION)

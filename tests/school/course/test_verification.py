"""A course that checks itself: each fault is found."""

import pytest
from tiny_course import BY_PRODUCT, FILES, write_course

from regard.school.course.answers import AnswerChecker
from regard.school.course.courses import read_course
from regard.school.course.verification import verify_course, verify_lesson


@pytest.fixture(scope="module")
def checker():
    with AnswerChecker() as checker:
        yield checker


def faults(tmp_path, checker, changes, name="twice"):
    course = read_course(write_course(tmp_path / "tiny", changes))
    return verify_lesson(course.lesson(name), checker).faults


def test_nothing_is_wrong_with_the_tiny_course(course, checker):
    reports = [verify_lesson(one, checker) for one in course.lessons]
    assert [(one.faults, one.wrong, one.ways) for one in reports] == [([], 0, 0), ([], 3, 2), ([], 3, 0)]
    assert verify_course(course) == []


EXERCISE, WRONG, WORDS = (FILES[f"twice/{file}"] for file in ("exercise.py", "wrong.txt", "words.md"))
CASES = {
    "start passes": (
        {"twice/start.py": f'"""Double."""\n{FILES["twice/solution.py"]}'},
        ["start.py must fail, but it is right"],
    ),
    "solution fails": (
        {"twice/solution.py": "def twice(x):\n    result = x\n    return result\n"},
        ["solution.py must pass, but: not doubled", "wrong.txt, same: solution.py does not have: x + x"],
    ),
    "wrong has another name": (
        {"twice/wrong.txt": WRONG.replace("# not doubled", "# squared")},
        ["wrong.txt, same must be named 'squared', but: not doubled"],
    ),
    "wrong is right": (
        {"twice/wrong.txt": WRONG.replace("\n+ x\n", "\n+ 2 * x\n")},
        ["wrong.txt, same must be named 'not doubled', but: right"],
    ),
    "wrong has no name": (
        {"twice/wrong.txt": WRONG.replace("# not doubled", "#")},
        ["wrong.txt, same has no name above it; write a line: # NAME"],
    ),
    "an edit does not fit": (
        {"twice/wrong.txt": WRONG.replace("- x + x", "- x + y")},
        ["wrong.txt, same: solution.py does not have: x + y"],
    ),
    "few wrong": (
        {"twice/wrong.txt": WRONG.replace("# not doubled\n\n@ same\n- x + x\n+ x\n\n", "")},
        ["wrong.txt has 2 wrong answers; at least 3"],
    ),
    "no wrong": ({"twice/wrong.txt": None}, ["wrong.txt has 0 wrong answers; at least 3"]),
    "a way fails": (
        {"twice/words.md": WORDS.replace("2 * x", "3 * x")},
        ["words.md, by product must pass, but: off by a factor"],
    ),
    "few ways": (
        {"twice/words.md": WORDS.replace(BY_PRODUCT, "")},
        ["words.md has 1 other ways; at least 2"],
    ),
    "a way has no name": (
        {"twice/words.md": WORDS.replace("Another way, by product:", "And:")},
        [
            'words.md has a code block without a name; begin it with lines: "Another way, NAME:", "", "```python"',
            "words.md has 1 other ways; at least 2",
        ],
    ),
    "files of before": (
        {"twice/wrong/same.py": "# named: not doubled\n", "twice/ways/by_product.py": "", "twice/hints.md": "# why\n"},
        [
            "wrong/: wrong answers are edits in wrong.txt now; see docs/learn.md",
            "ways/: other ways are code blocks in words.md now; see docs/learn.md",
            "hints.md: hints are in words.md now; see docs/learn.md",
        ],
    ),
    "stray file": ({"twice/notes.txt": "x"}, ["stray file: notes.txt"]),
    "stray file below": ({"twice/more/notes.txt": "x"}, ["stray file: more/notes.txt"]),
    "missing file": ({"twice/words.md": None}, ["missing: words.md"]),
    "hint too long": (
        {"twice/words.md": WORDS.replace("Line 8.", "Line\n8\nis\nit.")},
        ["hint 'where' has 4 lines; 1 to 3"],
    ),
    "hint too wide": (
        {"twice/words.md": WORDS.replace("Line 8.", "Line 8 " * 11)},
        ["hint 'where' has a line of 77 characters; at most 76"],
    ),
    "hint holds the solution": (
        {"twice/words.md": WORDS.replace("Use + once", "Write `result =  x + x` once")},
        ["hint 'almost' holds a line of the solution: result = x + x"],
    ),
    "hint missing": (
        {"twice/words.md": WORDS.replace("# almost\nUse + once, and x on both sides.\n\n", "")},
        ["words.md has where, why; it needs where, why, almost, in this order"],
    ),
    "no next": ({"twice/words.md": WORDS.replace("\nNext: a question.\n", "")}, ['words.md must end with a line '
    '"Next: …"']),
    "long explanation": (
        {"twice/words.md": WORDS.replace("2·x = x + x.", "x\n" * 13)},
        ["words.md explains in more than 12 lines"],
    ),
    "other names": (
        {"twice/solution.py": FILES["twice/solution.py"] + "\n\ndef help(x):\n    return x\n"},
        ["start.py and solution.py must define the same names; only one of them defines help"],
    ),
    "no task": (
        {"twice/start.py": "def twice(x):\n    result = ...\n    return result\n"},
        ["start.py has no docstring; it is the task"],
    ),
    "wrong equals right": (
        {"twice/exercise.py": EXERCISE.replace("lambda x: x * x", "lambda x: 2 * x")},
        ["exercise.py, twice: squared: it is right for these arguments", "wrong.txt, square must be named 'squared', "
        "but: "
         "Its result differs."],
    ),
    "wrong equals wrong": (
        {"twice/exercise.py": EXERCISE.replace("lambda x: x * x", "lambda x: 1 * x")},
        ["exercise.py, twice: not doubled and squared are the same function for these arguments; choose others, or "
        "leave one out", "wrong.txt, square must be named 'squared', but: "
         "Its result differs."],
    ),
    "right fails": (
        {"twice/exercise.py": EXERCISE.replace("lambda x: x * x", "lambda x: x.nothing")},
        ["exercise.py, twice: squared: act fails: AttributeError: 'Tensor' object has no attribute 'nothing'",
         "wrong.txt, square must be named 'squared', but: Its result differs."],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_fault_is_found_and_said(tmp_path, checker, case):
    changes, expected = CASES[case]
    assert faults(tmp_path, checker, changes) == expected


def test_an_exercise_that_does_not_load_says_why(tmp_path, checker):
    told = faults(tmp_path, checker, {"twice/exercise.py": '"""Double."""\nparts = [5]\n'})
    assert len(told) == 1
    assert "5 is no part" in told[0]


def test_an_exercise_that_should_pass_unsolved_and_does_not_is_told(tmp_path, checker):
    changes = {"hello/start.py": '"""Look."""\nready = "no"\n'}
    assert faults(tmp_path, checker, changes, "hello") == ["start.py must pass, as exercise.py says, but: ready: no"]


def test_a_folder_and_a_file_that_nobody_names_are_stray(tmp_path):
    folder = write_course(tmp_path / "tiny", {"rotary/start.py": "", "notes.txt": "", "README.md": "# Mine\n"})
    assert verify_course(read_course(folder)) == [
        "notes.txt is not named in course.toml",
        "rotary is not named in course.toml",
    ]

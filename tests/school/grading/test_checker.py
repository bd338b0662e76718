import os
import sys
from pathlib import Path

import pytest

from regard.school.exercises.exercise import load_exercise
from regard.school.grading.checker import Checker, check_submission
from regard.school.grading.key import GradeKey
from school.grading.submissions import FIRST_LINE, NO_SCALE, RIGHT


def scripted(monkeypatch, script):
    """Checkers whose process is this script; its second start, too."""
    monkeypatch.setattr("regard.school.grading.checker.START", script)
    monkeypatch.setattr("regard.school.grading.checker.FOR_THE_CHECK", 0.1)


READY = """import sys; sys.stdin.readline(); print('{"active": [], "missing": {}, "refused": false}', flush=True)
line = sys.stdin.readline()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("then", "why"), [("", "its process ended"), ("import time; time.sleep(60)", "it did not answer within 0.2 s")]
)
def test_a_check_that_ends_or_hangs_is_one_submissions_loss(tmp_path, monkeypatch, then, why):
    right = """import json; v = {"status": "right", "findings": [], "name": "A", "task": "attention", "problem": ""}
if "ana" in line: print(json.dumps({"tasks": [[v]], "prints": [7]}), flush=True)
else:
    pass
"""
    scripted(monkeypatch, f"{READY}{right}    {then}\n")
    for name in ("ana.py", "ben.py"):
        (tmp_path / name).write_text("")
    checker = Checker({"seconds": 0.1, "keys": [{}]}, tmp_path)
    checker.start()
    bad = checker.check(tmp_path / "ben.py")
    good = checker.check(tmp_path / "ana.py")
    checker.close()
    assert (bad.tasks[0][0]["problem"], bad.is_final) == (f"the check itself ended: {why}; check it by hand", False)
    assert (good.tasks[0][0]["status"], good.prints, good.limit, good.is_final) == ("right", [7], 0.1, True)


@pytest.mark.slow
def test_a_checker_imports_nothing_from_the_folder_or_the_current_one(tmp_path, monkeypatch):
    from regard.school.grading.checker import _import_path

    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr(sys, "path", ["", ".", str(here), str(tmp_path), *sys.path])
    path = _import_path(tmp_path)
    assert {"", ".", str(here), str(tmp_path)} & set(path) == set()
    assert Path(path[0], "regard").is_dir()


@pytest.mark.slow
def test_a_checker_that_is_killed_leaves_no_folder(tmp_path, monkeypatch):
    code = (
        "from regard.school.sandbox.folders import temporary_folder\nwith temporary_folder() as f: print(f, "
        "file=open(line[1:-2], 'w'), flush=True); input()"
    )
    scripted(monkeypatch, f"import sys; sys.path[:] = sys.argv[1:]\n{READY}{code}\n")
    note = tmp_path / "note"
    checker = Checker({"seconds": 5.0, "keys": [{}]}, tmp_path)
    checker.start()
    assert "it did not answer" in checker.check(note).tasks[0][0]["problem"]
    assert not Path(note.read_text().strip()).exists()


CONTENTS_FORGED = """
import sys
frame = sys._getframe()
while "names" not in frame.f_locals: frame = frame.f_back
frame.f_locals["names"]["run"] = lambda *given: ({}, {{}})
"""


def checked(tmp_path, worker, source, key=None, seconds=20.0):
    path = tmp_path / "homework.py"
    path.write_text(source)
    return check_submission(path, worker, key or GradeKey(), seconds)


def test_a_right_layer_is_right_at_hidden_sizes(tmp_path, worker):
    key = GradeKey(seed=99, sizes={"d_in": 17, "num_heads": 2, "head_dim": 11, "tokens": 7, "batch": 3})
    (verdict,) = checked(tmp_path, worker, RIGHT, key)
    assert (verdict.status, verdict.sizes) == ("right", {"d_in": 17, "d_out": 22, "context_length": 11})


def test_a_mistake_has_its_name_and_line(tmp_path, worker):
    (verdict,) = checked(tmp_path, worker, NO_SCALE)
    (mistake,) = verdict.mistakes
    assert (mistake.name, mistake.line, verdict.file) == ("no scale", 13, "homework.py")
    assert mistake.code == "scores = self.W_query(x) @ self.W_key(x).mT"


def test_a_class_that_is_not_there_cannot_be_checked(tmp_path, worker):
    (verdict,) = checked(tmp_path, worker, RIGHT, GradeKey(name="MultiHeadAttention"))
    assert verdict.problem == "homework.py has no MultiHeadAttention; it has CausalAttention"
    (verdict,) = checked(tmp_path, worker, "x = 3\n")
    assert verdict.problem == "it defines no attention layer"


def test_what_is_right_and_was_not_asked_for_is_wrong(tmp_path, worker):
    (verdict,) = checked(tmp_path, worker, RIGHT, GradeKey(task="causal multi-head attention"))
    assert [one.says for one in verdict.mistakes] == [
        "It is causal self-attention, one head of 21; the task is causal multi-head attention."
    ]


def test_an_argument_that_the_class_does_not_take_is_named(tmp_path, worker):
    (verdict,) = checked(tmp_path, worker, RIGHT, GradeKey(arguments={"bias": True}))
    assert verdict.problem.startswith("CausalAttention takes no argument bias; it takes d_in, d_out, context_length")


@pytest.mark.parametrize(
    "forged",
    [
        "7",
        '{"calls": 7, "recorded": [], "dropped": []}',
        '{"calls": [], "recorded": [], "dropped": [], "parameters": [{"name": "a", "shape": [1 << 40]}]}',
        '{"calls": [], "recorded": [], "dropped": [], "parameters": [{"name": "a", "shape": [-3]}]}',
        '{"calls": [], "recorded": [{"name": "mm", "line": 3, "inputs": []}], "dropped": []}',
    ],
)
def test_a_forged_result_is_no_result(tmp_path, worker, forged):
    source = RIGHT + CONTENTS_FORGED.replace("{}", forged, 1).replace("{{}}", "{}")
    (verdict,) = checked(tmp_path, worker, source)
    assert verdict.problem.startswith("malformed: What it returned is no result: ")


def test_time_is_for_all_experiments_together(tmp_path, worker):
    slow = RIGHT.replace(FIRST_LINE, f"{FIRST_LINE}        import time; time.sleep(0.4)\n")
    (verdict,) = checked(tmp_path, worker, slow, seconds=1.0)
    assert verdict.problem == "out of time: It did not end within 1 s."


def test_a_folder_is_a_submission_too(tmp_path, worker):
    (tmp_path / "ana").mkdir()
    (tmp_path / "ana" / "homework.py").write_text("from helper import W\n" + RIGHT)
    (tmp_path / "ana" / "helper.py").write_text("W = 3\n")
    (verdict,) = check_submission(tmp_path / "ana", worker, GradeKey(), 20.0)
    assert verdict.is_right  # the one of them that defines attention
    (tmp_path / "ana" / "second.py").write_text(RIGHT)
    (verdict,) = check_submission(tmp_path / "ana", worker, GradeKey(), 20.0)
    names = "helper.py, homework.py, second.py"
    assert verdict.problem == f"ana has 3 Python files ({names}); name the one: file = … in the key"
    (verdict,) = check_submission(tmp_path / "ana", worker, GradeKey(file="homework.py"), 20.0)
    assert verdict.is_right


def test_a_file_that_cannot_be_read_is_not_wrong(tmp_path, worker):
    path = tmp_path / "homework.py"
    path.write_text(RIGHT)
    path.chmod(0)
    (verdict,) = check_submission(path, worker, GradeKey(), 20.0)
    if os.geteuid():
        assert "homework.py cannot be read" in verdict.problem
    else:  # may read everything, and sends the text into the sandbox
        assert verdict.is_right


GUESSES = """def attention(q, k, v):
    return [(q @ k.mT / s).softmax(-1) @ v for s in (1, k.shape[-1] ** 0.5)]
"""
UNSEEN = "torch.Tensor.__eq__ = lambda *a: torch.tensor(True)\ntorch.Tensor.__hash__ = object.__hash__\n"


@pytest.mark.parametrize(
    "source",
    [
        GUESSES,
        RIGHT.replace(FIRST_LINE, f"{FIRST_LINE}        x.add_(1); x = x - 1\n") + UNSEEN,
    ],
    ids=["several guesses", "a replaced equality"],
)
def test_a_trick_is_not_right(tmp_path, worker, source):
    (verdict,) = checked(tmp_path, worker, source)
    assert verdict.status == "wrong"


EXERCISE = '''"""Double a number."""
from regard.school.exercises import Function, Wrong

parts = [
    Function(
        "double",
        lambda random: (int(random.initial_seed()),),
        right=lambda n: 2 * n,
        wrong=[Wrong("a square", "{0} is squared.", lambda n: n * n)],
    )
]
'''


@pytest.fixture
def exercise(tmp_path_factory):
    folder = tmp_path_factory.mktemp("teacher")
    (folder / "exercise.py").write_text(EXERCISE)
    return load_exercise(folder)


@pytest.mark.parametrize(
    ("source", "status", "says"),
    [
        ("def double(n): return n + n", "right", None),
        ("def double(n): return n * n", "wrong", ("a square", "41 is squared.")),
        ("def double(n): return ...", "wrong", ("not written yet", "Line 1 is not written yet.")),
        ("def triple(n): return n", "wrong", ("not defined", "It defines no double.")),
        (
            "import regard",
            "wrong",
            ("does not run", "The file does not run: ImportError: regard cannot be imported here"),
        ),
        (
            "from regard.school.exercises import Function\ndef double(n): return n + n",
            "wrong",
            ("does not run", "The file"),
        ),
    ],
)
def test_a_teachers_own_exercise_is_checked_with_the_seed_of_the_key(tmp_path, worker, exercise, source, status, says):
    path = tmp_path / "homework.py"
    path.write_text(source)
    (verdict,) = check_submission(path, worker, GradeKey(seed=41), 20.0, exercise)
    assert verdict.status == status
    if says is None:
        assert (verdict.name, verdict.task) == ("double", "Double a number.")
    else:
        (one,) = verdict.mistakes
        assert (one.name, one.says.startswith(says[1])) == (says[0], True)


def test_an_endless_answer_is_out_of_time(tmp_path, worker, exercise):
    path = tmp_path / "homework.py"
    path.write_text("def double(n):\n    while True: pass\n")
    (verdict,) = check_submission(path, worker, GradeKey(), 0.5, exercise)
    assert verdict.problem == "out of time: It did not end within 0.5 s."


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("import no_such_package", "it imports what is not installed here: No module named 'no_such_package'"),
        ("open('data.txt')", "it reads a file that is not here: [Errno 2] No such file or directory: 'data.txt'"),
    ],
)
def test_what_is_not_here_is_no_mistake(tmp_path, worker, exercise, line, problem):
    (verdict,) = checked(tmp_path, worker, f"{line}\n{RIGHT}")
    assert (verdict.status, len(verdict.notes)) == ("right", 1)
    (verdict,) = checked(tmp_path, worker, f"{line}\n")
    assert (verdict.status, verdict.problem) == ("unchecked", problem)
    (verdict,) = check_submission(tmp_path / "homework.py", worker, GradeKey(), 20.0, exercise)
    assert (verdict.status, verdict.problem) == ("unchecked", problem)


def test_a_problem_names_the_entries_of_the_key(tmp_path, worker):
    source = RIGHT.replace(
        "d_in, d_out, context_length):", "d_in, d_out, context_length, groove):\n        assert groove == 'a secret'"
    )
    (verdict,) = checked(tmp_path, worker, source)
    assert verdict.problem.endswith("give a value: groove = … under [arguments] in the key")

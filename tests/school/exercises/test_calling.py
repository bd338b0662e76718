from dataclasses import replace
from types import ModuleType

import pytest
import torch

from regard.school.check.learner_code.submission import Submission, SubmissionStopped
from regard.school.check.own_file import read_verdicts
from regard.school.exercises.calling import arguments_of, call_learner, call_own, check_layer, drive_layer
from regard.school.exercises.exercise import Judged, load_exercise
from regard.school.sandbox.outcome import Outcome


class FakeSubmission(Submission):
    """A process that returns these values, whatever it is asked."""

    def __init__(self, values):
        self.outcome = Outcome("finished", "", {}, values)

    def run(self, values, tensors, driver_source=""):
        return self.outcome


def part(arguments):
    return Judged("f", arguments, lambda result: None)


def test_arguments_depend_on_the_seed_alone():
    random = part(lambda random: (torch.randn(3, 5, generator=random), {"n": [7, "x"]}))
    first, second = arguments_of(random, 11), arguments_of(random, 11)
    torch.testing.assert_close(first[0], second[0])
    assert first[1] == {"n": [7, "x"]}
    assert not torch.equal(first[0], arguments_of(random, 12)[0])


def test_arguments_must_be_a_tuple_of_plain_values():
    with pytest.raises(ValueError, match="arguments of f returns the number 3; return a tuple of arguments"):
        arguments_of(part(lambda random: 3), 0)
    with pytest.raises(ValueError, match="arguments of f may be tensors, numbers, texts, or lists and dicts of these"):
        arguments_of(part(lambda random: (object(),)), 0)


def test_a_teachers_function_changes_no_argument_and_has_the_seed_of_the_learners():
    x = torch.ones(3)
    torch.testing.assert_close(call_own(lambda t: t.add_(1), (x,), 0), torch.full((3,), 2.0))
    torch.testing.assert_close(x, torch.ones(3))
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.testing.assert_close(call_own(lambda: torch.rand(3), (), 5), expected)


def test_random_numbers_of_the_learner_are_those_of_the_seed(worker, tmp_path):
    path = tmp_path / "answer.py"
    path.write_text("import torch\ndef f(x):\n    return x * torch.rand(3), 'a'\n")
    called = call_learner("f", [(2.0,), (3,)], Submission(path, worker, 20.0), 5)
    torch.manual_seed(6)
    torch.testing.assert_close(called.results[1][0], 3 * torch.rand(3))
    assert called.results[1][1] == "a"


def test_a_value_is_read_and_not_called(worker, tmp_path):
    path = tmp_path / "answer.py"
    path.write_text("n = 7\ndef f(): raise ValueError\n")
    assert call_learner("n", [()], Submission(path, worker, 20.0), 0, read=True).results == [7]
    assert call_learner("f", [()], Submission(path, worker, 20.0), 0, read=True).results[0].kind == "function"
    assert call_learner("m", [()], Submission(path, worker, 20.0), 0, read=True).is_missing


FAILED = {"type": "E", "message": "m", "line": 1, "function": "f"}


@pytest.mark.parametrize(
    "values",
    [
        None,
        [],
        {"calls": []},
        {"calls": [], "callable": True},
        {"calls": [{"result": {"tensor": "x"}, "after": {"list": []}}], "callable": True},
        {"calls": [{"result": 3, "after": {"list": []}}], "callable": True},
        {"calls": [{"result": {"value": 3}}], "callable": True},
        {"calls": [{"result": {"value": 3}, "after": [3]}], "callable": True},
        {"calls": [{"failed": {**FAILED, "line": "1"}}], "callable": True},
        {"calls": [{"failed": {**FAILED, "message": 3}}], "callable": True},
        {"calls": [{"failed": {**FAILED, "more": 3}}], "callable": True},
    ],
)
def test_what_is_no_result_is_malformed(values):
    with pytest.raises(SubmissionStopped, match="malformed: What it returned is no result"):
        call_learner("f", [()], FakeSubmission(values), 0)


EXERCISE = '''"""Attention."""
from regard.school.exercises import Layer, Question
from regard.mistakes.mistake import Mistake


def doubled(scores, case):
    return scores / (2 * case.head_dim**0.5)


own = Mistake("twice the root", "scale", doubled, "scaled", "It is √{head_dim}.", "Flat.", "scores / head_dim**0.5")
parts = [Question("n", 3), Layer("attention", causal=False, mistakes=[own])]
'''
ANSWER = "print('here')\ndef attention(q, k, v):\n    return (q @ k.mT / SCALE).softmax(-1) @ v\n"


@pytest.fixture
def own(tmp_path):
    (tmp_path / "exercise.py").write_text(EXERCISE)
    return load_exercise(tmp_path)


@pytest.fixture
def checked(own, worker, tmp_path):
    def check(source, exercise=own):
        path = tmp_path / "answer.py"
        path.write_text(source)
        return check_layer(exercise, exercise.parts[1], Submission(path, worker, 20.0), source, str(path), 5)

    return check


@pytest.mark.parametrize(
    ("scale", "names"),
    [("k.shape[-1] ** 0.5", []), ("2 / k.shape[-1] ** 0.5", ["twice the root"]), ("1", ["no scale"])],
)
def test_own_and_known_mistakes_are_named_in_one_process_and_in_many(checked, own, worker, scale, names):
    source = ANSWER.replace("SCALE", scale)
    before = worker._number
    one, printed = checked(source)
    assert printed == "here\n"
    assert worker._number == before + 1
    many, _ = checked(source, replace(own, path=None))
    assert worker._number > before + 2
    for verdict in (one, many):
        assert [mistake.name for mistake in verdict.mistakes] == names
        assert [mistake.line for mistake in verdict.mistakes] == [3] * len(names)
    assert one.task == many.task == "scaled dot-product attention of q, k and v"
    for a, b in zip(one.mistakes, many.mistakes, strict=True):
        torch.testing.assert_close(a.example.seen, b.example.seen)


def test_a_layer_that_is_not_there_has_no_verdict(checked, own):
    assert checked("x = 3\n") == (None, "")
    assert checked("x = 3\n", replace(own, path=None)) == (None, "")


def test_only_layers_are_checked_here(own):
    values = {"exercise": str(own.path), "part": 0, "source": "", "file": "", "seed": 0}
    with pytest.raises(TypeError, match="part 0 is no Layer"):
        drive_layer(ModuleType("answer"), values)
    tensors, written = drive_layer(ModuleType("answer"), {**values, "part": 1})
    assert read_verdicts(written, tensors) == []


def add_one(function, x):
    import math

    return function(x) + math.cos(0.0)


def test_a_function_may_be_called_through_another_that_runs_beside_it(worker, tmp_path):
    path = tmp_path / "answer.py"
    path.write_text("def f(x):\n    return 2 * x\n")
    called = call_learner("f", [(3,), (5,)], Submission(path, worker, 20.0), 0, through=add_one)
    assert called.results == [7.0, 11.0]
    assert call_own(lambda x: 2 * x, (3,), 0, add_one) == 7.0


def test_an_error_below_such_a_function_has_the_learners_line(worker, tmp_path):
    path = tmp_path / "answer.py"
    path.write_text("def f(x):\n    return x / 0\n")
    called = call_learner("f", [(3,)], Submission(path, worker, 20.0), 0, through=add_one)
    assert (called.failed.type, called.failed.line) == ("ZeroDivisionError", 2)


def test_what_is_no_function_is_not_called_through_another(worker, tmp_path):
    path = tmp_path / "answer.py"
    path.write_text("f = 3\n")
    called = call_learner("f", [(3,)], Submission(path, worker, 20.0), 0, through=add_one)
    assert not called.is_callable

import pytest
import torch

from regard.school.check.sandboxed import Submission, SubmissionStopped
from regard.school.exercises.calling import arguments_of, call_learner, call_own
from regard.school.exercises.parts import Judged
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
        {"calls": [{"result": {"tensor": "x"}}], "callable": True},
        {"calls": [{"result": 3}], "callable": True},
        {"calls": [{"failed": {**FAILED, "line": "1"}}], "callable": True},
        {"calls": [{"failed": {**FAILED, "message": 3}}], "callable": True},
        {"calls": [{"failed": {**FAILED, "more": 3}}], "callable": True},
    ],
)
def test_what_is_no_result_is_malformed(values):
    with pytest.raises(SubmissionStopped, match="malformed: What it returned is no result"):
        call_learner("f", [()], FakeSubmission(values), 0)

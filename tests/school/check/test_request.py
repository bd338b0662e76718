import torch

from regard.school.check.check import check
from regard.school.check.compare.constructor_arguments import PROBES
from regard.school.check.compare.experiment import experiment
from regard.school.check.learner_code.protocol import Failure
from regard.school.check.learner_code.subject import LocalSubject
from regard.school.check.request import FLAGS, IN_KEY, IN_PYTHON, Request


class Odd(torch.nn.Module):
    def __init__(self, groove):
        super().__init__()
        assert groove == "a secret"

    def forward(self, x):
        return x


class Unnamed(torch.nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.a = torch.nn.Linear(d_model, 2 * d_model)

    def forward(self, x):
        return x


def problem(target, spelling):
    result = experiment(LocalSubject(target), PROBES[0], 0, Request(spelling=spelling))
    return result.problem or result.unread


def test_every_sentence_that_asks_for_something_is_spelled_as_it_is_given():
    for target in (Odd, Unnamed):
        assert "--" in problem(target, FLAGS)
        assert "--" not in problem(target, IN_PYTHON)
        assert "--" not in problem(target, IN_KEY)


def test_a_check_in_python_names_arguments():
    assert check(Odd).problem.endswith("give a value: arguments={'groove': …}")


def test_a_key_has_entries_for_weights():
    weights = "W_query = …, W_key = …, W_value = …, out_proj = … under [weights] in the key"
    assert problem(Unnamed, IN_KEY).endswith(f"Say it: {weights}")


def test_a_refusal_is_told_with_its_line_and_a_remedy():
    failed = Failure("ValueError", "too small\nby far", 7)
    says = "it refuses everything that was tried: ValueError: too small (line 7); give another value: --set dim=…"
    assert Request().ask_for_others(failed, ["dim"]) == says
    assert Request().ask_for_others(Failure("AssertionError", ""), []) == (
        "it refuses everything that was tried: AssertionError"
    )


def test_a_layer_that_is_not_written_yet_is_asked_for_nothing():
    failed = Failure("NotImplementedError", "", 21, "forward")
    says = Request().ask_for_others(failed, ["d_in"])
    assert says == "it is not written yet: line 21 raises NotImplementedError"

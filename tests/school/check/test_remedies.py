import torch

from regard.school.check.check import check
from regard.school.check.compare.constructor_arguments import PROBES
from regard.school.check.compare.experiment import Request, experiment
from regard.school.check.learner_code.subject import LocalSubject
from regard.school.check.remedies import in_key, in_python


class Odd(torch.nn.Module):
    def __init__(self, groove):
        super().__init__()

    def forward(self, x):
        return x


class Unnamed(torch.nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.a = torch.nn.Linear(d_model, 2 * d_model)

    def forward(self, x):
        return x


def problem(target):
    return experiment(LocalSubject(target), PROBES[0], 0, Request()).problem


def test_every_flag_in_a_sentence_of_a_check_is_known_here():
    for target in (Odd, Unnamed):
        said = problem(target)
        assert "--" in said
        assert "--" not in in_python(said)
        assert "--" not in in_key(said)


def test_a_check_in_python_names_arguments():
    assert check(Odd).problem.endswith("give a value: arguments={'groove': …}")


def test_a_key_has_entries_for_weights():
    text = in_key("Say it: --names W_query=…,W_key=…,W_value=…,out_proj=…")
    assert text == "Say it: W_query = …, W_key = …, W_value = …, out_proj = … under [weights] in the key"

"""Which parameters are the projections, for how many heads."""

import pytest
import torch
from torch import nn

from regard.school.check.compare.constructor_arguments import PROBES
from regard.school.check.compare.experiment import Attempt, known_weights
from regard.school.check.compare.readings import input_width, readings_of
from regard.school.check.learner_code.subject import LocalSubject
from regard.school.check.request import Request


class Heads(nn.Module):
    def __init__(self, width, heads=None):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        if heads:
            self.num_heads = heads

    def forward(self, x):
        return self.o(torch.softmax(self.q(x) @ self.k(x).mT, dim=-1) @ self.v(x))


def attempt_of(module, **own):
    """A module as it is, as an experiment sees it before it reads its parameters."""
    result = Attempt(subject=LocalSubject(module), request=Request(None, own), sizes=PROBES[0])
    result.observation = result.subject.run({"build": None}, {})
    return result


@pytest.mark.parametrize(("module", "heads"), [(Heads(12, 4), {4}), (Heads(6), {1, 2, 3, 6})])
def test_an_attribute_tells_the_number_of_heads_or_all_that_divide_the_width_are_tried(module, heads):
    result = attempt_of(module)
    readings = list(readings_of(result, known_weights(result.observation.contents, 0)))
    assert {one.num_heads for one in readings} == heads


def test_the_likeliest_reading_is_by_names_and_tells_the_width_of_x():
    result = attempt_of(Heads(12, 4))
    weights = known_weights(result.observation.contents, 0)
    first, *_ = readings = list(readings_of(result, weights))
    assert first.projections["W_query"].weight.equal(weights["q.weight"])
    assert first.projections["out_proj"].weight.equal(weights["o.weight"])
    assert input_width(readings, result) == 12


def test_a_number_of_heads_that_is_given_decides():
    result = attempt_of(Heads(12, 4), num_heads=2)
    readings = readings_of(result, known_weights(result.observation.contents, 0))
    assert {one.num_heads for one in readings} == {2}

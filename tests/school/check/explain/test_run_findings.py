import torch
from torch.nn import functional as F

from regard.school.check.check import check
from regard.school.check.compare.constructor_arguments import PROBES
from regard.school.check.compare.experiment import experiment
from regard.school.check.compare.run_reading import with_run_reading
from regard.school.check.explain.run_findings import wrong_parts
from regard.school.check.learner_code.subject import LocalSubject
from regard.school.check.request import Request
from school.check.compare.strange_layers import Beta


class Rotary(Beta):
    """Rotary positions."""

    def turned(self, q, k, v):
        return self.turn(q), self.turn(k), v

    def forward(self, x):
        B, T, E = x.shape
        v, q, k = (t.view(B, T, self.h, -1).transpose(1, 2) for t in self.mix(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(*self.turned(q, k, v), is_causal=True)
        return self.end(y.transpose(1, 2).reshape(B, T, E))


class OnValues(Rotary):
    """Rotary positions: rotate queries, keys."""

    def turned(self, q, k, v):
        return self.turn(q), self.turn(k), self.turn(v)


class OnQueries(Rotary):
    """Rotary positions: rotate queries, keys."""

    def turned(self, q, k, v):
        return self.turn(q), k, v


class Twice(Rotary):
    def turned(self, q, k, v):
        return q, k, k


def parts(layer):
    result = with_run_reading(experiment(LocalSubject(layer), PROBES[0], 0, Request(), square=True))
    return [one.name for one in wrong_parts(result)]


def test_rotary_positions_belong_to_queries_and_keys():
    assert check(Rotary).is_right
    assert parts(OnValues) == ["rotary positions on the values"]
    assert parts(OnQueries) == ["rotary positions on one side"]


def test_one_part_of_a_packed_weight_that_is_used_twice_is_named_and_the_rest_is_not():
    assert parts(Twice) == ["one projection used twice: the values are made with the weights of the keys"]


def test_a_right_layer_has_no_wrong_part():
    assert parts(Rotary) == []
    assert torch.is_tensor(Rotary(6, 3)(torch.zeros(1, 2, 6)))

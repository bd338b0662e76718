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


class OnItself(Rotary):
    """Rotary positions: rotate queries, keys."""

    def forward(self, x):
        B, T, E = x.shape
        _, q, k = (t.view(B, T, self.h, -1).transpose(1, 2) for t in self.mix(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(self.turn(q), self.turn(k), x.view(B, T, self.h, -1).transpose(1, 2))
        return self.end(y.transpose(1, 2).reshape(B, T, E))


def test_values_that_are_x_itself_are_named():
    assert "not projected: the values are x itself" in [one.name for one in check(OnItself).mistakes]


class Capped(Rotary):
    """Scores have a soft cap."""

    cap = 30.0

    def scores(self, q, k, future):
        return (30.0 * torch.tanh(q @ k.mT / q.shape[-1] ** 0.5 / 30.0)).masked_fill(future, -torch.inf)

    def forward(self, x):
        B, T, E = x.shape
        v, q, k = (t.view(B, T, self.h, -1).transpose(1, 2) for t in self.mix(x).chunk(3, -1))
        future = torch.ones(T, T, dtype=torch.bool).triu(1)
        y = self.scores(q, k, future).softmax(-1) @ v
        return self.end(y.transpose(1, 2).reshape(B, T, E))


class NotBack(Capped):
    """Scores have a soft cap."""

    def scores(self, q, k, future):
        return torch.tanh(q @ k.mT / q.shape[-1] ** 0.5 / 30.0).masked_fill(future, -torch.inf)


class AfterMask(Capped):
    """Scores have a soft cap."""

    def scores(self, q, k, future):
        scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(future, -torch.inf)
        return 30.0 * torch.tanh(scores / 30.0)


class OneRoot(Capped):
    """Queries and keys are both divided by the root of the root."""

    def scores(self, q, k, future):
        return ((q * q.shape[-1] ** -0.25) @ k.mT).masked_fill(future, -torch.inf)


class Normed(Rotary):
    """QK-norm: queries and keys are normalised."""

    def turned(self, q, k, v):
        return F.rms_norm(q, q.shape[-1:]), F.rms_norm(k, k.shape[-1:]), v


class OverTokens(Rotary):
    """QK-norm: queries and keys are normalised."""

    def turned(self, q, k, v):
        return F.normalize(q, dim=2), F.normalize(k, dim=2), v


class OverHeads(Rotary):
    """QK-norm, and then rotary positions."""

    def turned(self, q, k, v):
        q, k = ((t - t.mean(1, keepdim=True)) / t.std(1, keepdim=True, unbiased=False) for t in (q, k))
        return self.turn(q), self.turn(k), v


class QueriesNormed(Rotary):
    """QK-norm: queries and keys are normalised."""

    def turned(self, q, k, v):
        return F.rms_norm(q, q.shape[-1:]), k, v


class WithoutPromise(Rotary):
    """Queries are normalised."""

    def turned(self, q, k, v):
        return F.rms_norm(q, q.shape[-1:]), k, v


class Mixed(Rotary):
    """Rotary positions."""

    def turn(self, t):
        half = t.shape[-1] // 2
        angles = torch.arange(t.shape[-2])[:, None] * 10000.0 ** (-torch.arange(half) / half)
        cos, sin = (f(angles).repeat_interleave(2, dim=-1).to(t) for f in (torch.cos, torch.sin))
        u = t[..., : 2 * half]
        u = u * cos + torch.cat((-u[..., half:], u[..., :half]), -1) * sin
        return torch.cat((u, t[..., 2 * half :]), -1)


def test_a_soft_cap_is_multiplied_back_and_comes_before_the_mask():
    assert check(Capped).is_right
    assert parts(NotBack) == ["soft cap not multiplied back"]
    assert parts(AfterMask) == ["soft cap after the mask"]


def test_a_scale_belongs_to_both_sides_where_it_is_a_root_of_a_root():
    assert parts(OneRoot) == ["scale on one side only"]


def test_queries_and_keys_are_both_normalised_over_their_own_numbers():
    assert check(Normed).is_right
    assert parts(OverTokens) == parts(OverHeads) == ["queries and keys normalised over the wrong axis"]
    assert parts(QueriesNormed) == ["only queries or only keys normalised"]
    assert parts(WithoutPromise) == []


def test_a_pair_of_numbers_is_rotated_by_one_angle():
    assert parts(Mixed) == ["rotary pairs mixed up"]


class OneSlice(Rotary):
    """One matrix for queries, key and value; all heads have the same key and value."""

    def forward(self, x):
        B, T, E = x.shape
        D = E // self.h
        q, k = self.mix(x)[..., :E].view(B, T, self.h, D), self.mix(x)[..., E : E + D]
        scores = torch.einsum("bqhd,bkd->bhqk", q, k) / D**0.5
        return self.end(torch.einsum("bhqk,bkd->bqhd", scores.softmax(-1), k).reshape(B, T, E))


def test_letters_of_einsum_do_not_say_that_weights_are_shared():
    assert parts(OneSlice) == ["one projection used twice: the values are made with the weights of the keys"]

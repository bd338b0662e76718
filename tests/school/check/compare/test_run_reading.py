import pytest
import torch
from torch import nn

from regard.school.check.check import check
from regard.school.check.compare.constructor_arguments import PROBES
from regard.school.check.compare.experiment import experiment
from regard.school.check.compare.run_reading import with_run_reading
from regard.school.check.learner_code.subject import LocalSubject
from regard.school.check.request import Request
from school.check.compare.strange_layers import Alpha, Beta, Gamma


def read(layer):
    return with_run_reading(experiment(LocalSubject(layer), PROBES[0], 0, Request(), square=True))


@pytest.mark.parametrize("layer", [Alpha, Beta, Gamma])
def test_a_right_layer_with_strange_names_is_right(layer):
    assert read(layer).is_right
    assert check(layer).is_right


class Unscaled(Alpha):
    def forward(self, x):
        one, two, three = (torch.einsum("bte,hed->bhtd", x, p) for p in (self.a, self.b, self.c))
        return self.end(torch.einsum("bhtd,bhsd->bhts", one, two).softmax(-1), three)


class Unmerged(Beta):
    def forward(self, x):
        B, T, E = x.shape
        v, q, k = (t.view(B, T, self.h, -1).transpose(1, 2) for t in self.mix(x).chunk(3, -1))
        return self.end(torch.nn.functional.scaled_dot_product_attention(q, k, v).reshape(B, T, E))


class EndsTwice(Beta):
    def __init__(self, d_model, num_heads):
        super().__init__(d_model, num_heads)
        self.end = nn.Sequential(self.end, self.end)


@pytest.mark.parametrize(
    ("layer", "name"),
    [
        (Unscaled, "no scale"),
        (Unmerged, "merge without transposing back"),
        (EndsTwice, "output projection applied twice"),
    ],
)
def test_a_mistake_in_a_layer_with_strange_names_keeps_its_name(layer, name):
    assert read(layer).names == [(name,)]


class OneForTwo(Alpha):
    def forward(self, x):
        one, three = (torch.einsum("bte,hed->bhtd", x, p) for p in (self.a, self.c))
        return self.end(torch.einsum("bhtd,bhsd->bhts", one, one).div(7**0.5).softmax(-1), three)


class EightHeads(Beta):
    def __init__(self, d_model, num_heads):
        super().__init__(d_model, num_heads)
        self.h = 1


class HalfTurned(Beta):
    def forward(self, x):
        B, T, E = x.shape
        v, q, k = (t.view(B, T, self.h, -1).transpose(1, 2) for t in self.mix(x).chunk(3, -1))
        y = torch.nn.functional.scaled_dot_product_attention(self.turn(q), k, v)
        return self.end(y.transpose(1, 2).reshape(B, T, E))


class Rolled(Beta):
    def forward(self, x):
        B, T, E = x.shape
        v, q, k = (t.view(B, T, self.h, -1).transpose(1, 2) for t in self.mix(x).chunk(3, -1))
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v).roll(1, 1)
        return self.end(y.transpose(1, 2).reshape(B, T, E))


class Unprojected(Alpha):
    def forward(self, x):
        one, two = (torch.einsum("bte,hed->bhtd", x, p) for p in (self.a, self.b))
        three = x.view(*x.shape[:2], 3, -1).transpose(1, 2)
        return self.end(torch.einsum("bhtd,bhsd->bhts", one, two).div(7**0.5).softmax(-1), three)


@pytest.mark.parametrize(
    ("layer", "doubt"),
    [
        (OneForTwo, "its queries and keys are made with the same weights"),
        (EightHeads, "it has 1 head, and was built with num_heads=3"),
        (HalfTurned, "positions are in the queries or the keys only"),
        (Rolled, "the heads are joined in another order than that of the output projection"),
        (Unprojected, "its values are x itself"),
    ],
)
def test_what_is_not_as_it_should_be_is_never_right_and_is_said(layer, doubt):
    result = read(layer)
    assert not result.is_right
    assert doubt in (result.unread, *(one for name in result.names for one in name))


class OwnNorm(Beta):
    def __init__(self, d_model, num_heads):
        super().__init__(d_model, num_heads)
        self.gamma = nn.Parameter(torch.ones(d_model))

    def forward(self, x):
        return super().forward(nn.functional.layer_norm(x, x.shape[-1:]) * self.gamma)


class TwoNorms(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h, self.one, self.two = num_heads, nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.asks, self.gives = nn.Linear(d_model, d_model), nn.Linear(d_model, 2 * d_model)
        self.end = nn.Linear(d_model, d_model)

    def forward(self, latents, context):
        q, (k, v) = self.asks(self.one(latents)), self.gives(self.two(context)).chunk(2, -1)
        q, k, v = (t.unflatten(-1, (self.h, -1)).transpose(1, 2) for t in (q, k, v))
        return self.end(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


@pytest.mark.parametrize("layer", [OwnNorm, TwoNorms])
def test_a_layer_that_normalises_x_itself_is_right(layer):
    assert check(layer).is_right


class Quarter(Beta):
    """Rotary positions in the first quarter of every head."""

    def turn(self, t):
        quarter = t.shape[-1] // 4
        half = max(quarter // 2, 1)
        angles = torch.arange(t.shape[-2])[:, None] * 10000.0 ** (-torch.arange(half) / half)
        a, b = t[..., :half], t[..., half:quarter]
        cos, sin = angles.cos().to(t), angles.sin().to(t)
        return torch.cat((a * cos - b * sin, b * cos + a * sin, t[..., quarter:]), -1)


def test_a_rotary_layer_that_is_odd_at_odd_sizes_is_read_at_even_ones():
    assert check(Quarter).is_right

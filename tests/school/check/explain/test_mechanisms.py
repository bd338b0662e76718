import pytest
import torch
from torch import nn

from regard.mistakes.search import MISTAKES
from regard.school.check.check import check
from regard.school.check.explain.mechanisms import announced, other_mechanism
from regard.school.check.learner_code.protocol import Observation


@pytest.mark.parametrize(
    ("source", "name", "phrase"),
    [
        ("class LuongAttention: ...", "LuongAttention", "Luong's attention"),
        ('class A:\n    """Retention, as in RetNet."""', "A", "retention"),
        ("class MultiHeadAttention: ...", "MultiHeadAttention", ""),
        ("class A:\n    performer = 1", "A", ""),
    ],
)
def test_another_mechanism_is_known_by_what_the_code_says_of_itself(source, name, phrase):
    assert other_mechanism(source, name, Observation()) == phrase


@pytest.mark.parametrize(
    ("mistake", "source", "said"),
    [
        ("no scale", "class A:  # T5 does without a scale", "T5"),
        ("no scale", "class A:  # divided by sqrt(d)", ""),
        ("sigmoid in place of the softmax", "class SigmoidAttention: ...", "SigmoidAtt"),
        ("not projected: the values are x itself", "class A:  # the values are the inputs", "values are the inputs"),
    ],
)
def test_what_the_code_says_is_meant_is_no_mistake(mistake, source, said):
    one = next(one for one in MISTAKES if one.name == mistake)
    name = "SigmoidAttention" if "Sigmoid" in source else "A"
    assert announced([one], source, name) == said


class Words(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.proj, self.vector = nn.Linear(d_model, d_model), nn.Parameter(torch.randn(d_model))

    def forward(self, h):
        shares = torch.softmax(torch.tanh(self.proj(h)) @ self.vector, dim=1)
        return (shares[..., None] * h).sum(1)


class OneToken(nn.Module):
    """Only the class token asks."""

    def __init__(self, d_model):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(d_model, d_model) for _ in range(3))

    def forward(self, x):
        return (self.q(x[:, :1]) @ self.k(x).mT / x.shape[-1] ** 0.5).softmax(-1) @ self.v(x)


class OnlyTheLast(OneToken):
    """Every token asks, and only the last pool is returned."""

    def forward(self, x):
        return ((self.q(x) @ self.k(x).mT / x.shape[-1] ** 0.5).softmax(-1) @ self.v(x))[:, -1]


def test_one_vector_for_a_text_is_another_mechanism_if_no_token_but_one_asks():
    assert "pooling of a text" in check(Words).problem
    assert "one query for a text" in check(OneToken).problem
    assert check(OnlyTheLast).status == "wrong"


class EncoderAttention(nn.Module):
    """T5 style: no scale."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h = num_heads
        self.q, self.k, self.v, self.o = (nn.Linear(d_model, d_model, bias=False) for _ in range(4))

    def forward(self, x):
        B, T, E = x.shape
        q, k, v = (f(x).view(B, self.h, T, -1) for f in (self.q, self.k, self.v))
        return self.o(((q @ k.mT).softmax(-1) @ v).transpose(1, 2).reshape(B, T, E))


def test_a_layer_that_means_one_of_two_mistakes_makes_the_other():
    assert [one.name for one in check(EncoderAttention).mistakes] == ["split without transpose"]

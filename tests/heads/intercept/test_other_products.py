"""Products that are no softmax attention: scores without a softmax, linear attention, weights that are used twice."""

import warnings

import pytest
import torch
from torch import nn

import regard

B, T, H, D = 2, 7, 3, 5
E = H * D


class Model(nn.Module):
    """Attention that is seen, and after it a layer of another kind."""

    def __init__(self, attend):
        super().__init__()
        self.first, self.layer = nn.MultiheadAttention(E, H, batch_first=True), Layer(attend)

    def forward(self, x):
        return self.layer(x + self.first(x, x, x, need_weights=False)[0])


class Layer(nn.Module):
    def __init__(self, attend):
        super().__init__()
        self.qkv, self.attend = nn.Linear(E, 3 * E), attend

    def forward(self, x):
        q, k, v = self.qkv(x).view(B, T, 3, H, D).permute(2, 0, 3, 1, 4)
        return self.attend(q, k, v)


def over_sum(t):
    return t / t.sum(-1, keepdim=True)


NO_SOFTMAX = {
    "sigmoid": lambda q, k, v: (q @ k.mT).sigmoid() @ v,
    "exp over sum": lambda q, k, v: over_sum((q @ k.mT).exp()) @ v,
    "exp of log_softmax": lambda q, k, v: (q @ k.mT).log_softmax(-1).exp() @ v,
    "squares": lambda q, k, v: (q @ k.mT).relu().square() @ v,
    "nothing": lambda q, k, v: (q @ k.mT) @ v,
    "by einsum": lambda q, k, v: torch.einsum("bhts,bhsd->bthd", torch.einsum("bhtd,bhsd->bhts", q, k).sigmoid(), v),
    "keys first": lambda q, k, v: v.mT @ (k @ q.mT).sigmoid(),
}


@pytest.mark.parametrize("kind", NO_SOFTMAX)
def test_scores_that_are_multiplied_without_a_softmax_are_named(kind):
    model, x = Model(NO_SOFTMAX[kind]), torch.randn(B, T, E)
    for _ in range(2):  # a second watch says it again
        said = "the attention in layer is not reported: its scores are multiplied with values without a softmax"
        with pytest.warns(UserWarning, match=said), regard.watch(model) as seen:
            model(x)
        assert [layer.name for layer in seen] == ["first"]


def test_linear_attention_is_named():
    model = Model(lambda q, k, v: q.relu() @ (k.relu().mT @ v))
    with pytest.warns(UserWarning, match=r"multiplies keys with values before queries \(linear"), regard.watch(model):
        model(torch.randn(B, T, E))


def test_weights_that_are_multiplied_twice_are_said():
    def twice(q, k, v):
        weights = (q @ k.mT).softmax(-1)
        return weights @ v + weights @ k

    said = "the attention in layer is reported in part: its weights are multiplied with a second tensor"
    with pytest.warns(UserWarning, match=said), regard.watch(model := Model(twice)) as seen:
        model(torch.randn(B, T, E))
    assert [layer.name for layer in seen] == ["first", "layer"]
    with (
        pytest.raises(ValueError, match="cannot cut the attention in layer: its weights"),
        regard.cut(model, [(0, 0), (1, 0)]),
    ):
        model(torch.randn(B, T, E))


OTHERS = {
    "a bilinear form": lambda q, k, v: (q @ k.mT).sum((-1, -2)),
    "a product of matrices": lambda q, k, v: v @ torch.eye(D) @ torch.randn(D, D),
    "softmax attention": lambda q, k, v: (q @ k.mT).softmax(-1) @ v @ torch.ones(D, D),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_other_products_are_not_named(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with regard.watch(model := Model(OTHERS[kind])) as seen:
            model(torch.randn(B, T, E))
    assert len(list(seen)) == 1 + (kind == "softmax attention")

"""How tensors were made: a step for each function that is understood, none for others, and no tensor kept alive."""

import weakref

import pytest
import torch
from torch import nn

from regard.heads.calls.lineage import TensorLineage, einsum_terms

B, T, H, D = 2, 5, 3, 7


def recorded(name, function, *args, **kwargs):
    lineage = TensorLineage()
    out = function(*args, **kwargs)
    lineage.record(name, function, args, kwargs, out)
    return lineage, out


def test_views_of_a_projection_are_projected_and_those_of_anything_else_are_not():
    lineage, layer, x = TensorLineage(), nn.Linear(H * D, H * D), torch.randn(B, T, H * D)
    q = layer(x)
    lineage.leaf(layer, (x,), q)
    view = q.view(B, T, H, D)
    lineage.record("view", torch.Tensor.view, (q, B, T, H, D), {}, view)
    assert lineage.of(view).is_projected
    lineage, other = recorded("view", torch.Tensor.view, x, B, T, H, D)
    assert not lineage.of(other).is_projected
    assert lineage.of(other).has_features_last
    lineage, other = recorded("flatten", torch.flatten, torch.randn(B, H, T, D), 0, 1)
    assert not lineage.of(other).has_features_last


def test_no_tensor_is_kept_alive():
    lineage, x = TensorLineage(), torch.randn(B, T, D)
    out = torch.cat([x, x], -1)
    lineage.record("cat", torch.cat, ([x, x], -1), {}, out)
    parts = weakref.ref(x), weakref.ref(out)
    del x, out
    assert [part() for part in parts] == [None, None]


def test_steps_of_tensors_that_died_are_dropped():
    lineage, x = TensorLineage(), torch.randn(B, T)
    for _ in range(5000):
        out = x.mT
        lineage.record("mT", torch.Tensor.mT.__get__, (x,), {}, out)
    assert len(lineage._steps) < 4200
    assert lineage.of(out) is not None


def test_a_product_of_two_tensors_is_scores_until_the_next_projection():
    q, k = torch.randn(B, T, D), torch.randn(B, T, D)
    lineage, scores = recorded("matmul", torch.matmul, q, k.mT)
    assert lineage.of(scores).is_scores
    layer = nn.Linear(T, T)
    lineage.leaf(layer, (scores,), out := layer(scores))
    assert not lineage.of(out).is_scores
    assert lineage.of(q) is not None


def test_an_outer_product_is_none():
    lineage, out = recorded("matmul", torch.matmul, torch.randn(B, D, 1), torch.randn(B, 1, T))
    assert lineage.of(out) is None


@pytest.mark.parametrize(
    ("name", "function", "args"),
    [
        ("ones_like", torch.ones_like, ()),
        ("__getitem__", torch.Tensor.__getitem__, (torch.tensor([1, 0]),)),
        ("argmax", torch.argmax, ()),
        ("sum", torch.sum, ()),
    ],
)
def test_what_a_function_returns_that_is_not_understood_has_no_step(name, function, args):
    lineage, x = TensorLineage(), torch.randn(B, T)
    lineage.record("mT", torch.Tensor.mT.__get__, (x.mT,), {}, x)
    out = function(x, *args)
    lineage.record(name, function, (x, *args), {}, out)
    assert lineage.of(out) is None


def test_an_einsum_without_a_result_has_the_axes_that_occur_once():
    assert einsum_terms("bts, bsd -> btd") == (["bts", "bsd"], "btd")
    assert einsum_terms("st,td") == (["st", "td"], "ds")

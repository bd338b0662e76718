"""Rung 2: learned queries, keys and values, and the scale."""

import pytest
import torch

from regard import attend_in_steps, trace
from regard.ladder import SelfAttention


def test_width_in_and_out_may_differ():
    assert SelfAttention(d_in=3, d_out=5)(torch.randn(2, 7, 3)).shape == (2, 7, 5)


def test_it_computes_the_one_formula():
    layer = SelfAttention(d_in=3, d_out=5, qkv_bias=True).double()
    x = torch.randn(2, 7, 3, dtype=torch.float64)
    q, k, v = (w(x)[:, None] for w in (layer.W_query, layer.W_key, layer.W_value))
    context, weights = attend_in_steps(q, k, v)
    t = trace(layer, x)
    torch.testing.assert_close(t.out, context[:, 0])
    torch.testing.assert_close(t["weights"], weights[:, 0])


def test_scores_are_divided_by_the_root_of_the_keys_width():
    t = trace(SelfAttention(d_in=3, d_out=5), torch.randn(2, 7, 3))
    torch.testing.assert_close(t["scaled"], t["scores"] / 5**0.5)


def test_the_steps_come_in_order():
    t = trace(SelfAttention(3, 2), torch.randn(1, 4, 3))
    assert t.names == ["x", "queries", "keys", "values", "scores", "scaled", "weights", "context"]


def test_bias_is_there_only_when_asked_for():
    assert [n for n, _ in SelfAttention(3, 2).named_parameters()] == [
        "W_query.weight",
        "W_key.weight",
        "W_value.weight",
    ]
    assert sum(p.numel() for p in SelfAttention(3, 2, qkv_bias=True).parameters()) == 3 * (3 * 2 + 2)


def test_wrong_width_says_what_would_fit():
    with pytest.raises(ValueError, match=r"x has width 5 but this layer was built with d_in=3; project it first"):
        SelfAttention(3, 2)(torch.randn(1, 4, 5))


def test_a_missing_batch_axis_says_how_to_add_it(without_shape_checks):
    with pytest.raises(ValueError, match=r"x must be \(B, T, d_in\), but has shape \(4, 3\); add a batch axis"):
        SelfAttention(3, 2)(torch.randn(4, 3))


def test_a_width_of_nothing_is_refused():
    with pytest.raises(ValueError, match=r"d_out \(0\) must be a whole number of at least 1"):
        SelfAttention(3, 0)

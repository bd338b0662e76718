"""The formula, one line per step: against explicit loops, and what it promises about weights and precision."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers import by_loops, random_qkv
from regard import alibi_slopes, attend_in_steps, causal, dense, padding, trace

EXACT = {"rtol": 1e-9, "atol": 1e-11}


@pytest.mark.parametrize("alibi", [False, True])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_steps_equal_explicit_loops(scale, alibi):
    q, k, v = random_qkv(B=2, H=4, T=3, S=5, D=7, Hkv=2)
    mask, slopes = causal() & padding([5, 2]), alibi_slopes(4) if alibi else None
    found = attend_in_steps(q, k, v, mask=mask, scale=scale, alibi=slopes)
    wanted = by_loops(q, k, v, mask.dense(3, 5).expand(2, 4, 3, 5), scale, slopes)
    torch.testing.assert_close(found, wanted, **EXACT)


def test_gradients_of_the_readable_way_are_right():
    q, k, v = random_qkv(B=2, H=2, T=3, S=5, D=2, requires_grad=True)
    mask = causal() & padding([5, 0])
    torch.autograd.gradcheck(lambda *qkv: attend_in_steps(*qkv, mask=mask, alibi=alibi_slopes(2)), (q, k, v))


@given(seed=st.integers(0, 99), T=st.integers(1, 9), S=st.integers(1, 9))
def test_weights_of_a_row_sum_to_one_or_to_nothing(seed, T, S):
    torch.manual_seed(seed)
    q, k, v = random_qkv(B=2, H=3, T=T, S=S, D=5)
    mask = dense(torch.rand(2, 1, T, S) < 0.5)
    _, weights = attend_in_steps(10 * q, k, v, mask=mask)
    wanted = mask.dense(T, S).any(-1).expand(2, 3, T).double()
    torch.testing.assert_close(weights.sum(-1), wanted)
    assert (weights >= 0).all()


def test_weights_are_handed_back_before_dropout():
    q, k, v = random_qkv(B=2, H=3, T=5, S=7, D=11)
    torch.testing.assert_close(attend_in_steps(q, k, v, dropout=0.9)[1], attend_in_steps(q, k, v)[1])


def test_autocast_does_not_round_the_readable_way():
    q, k, v = random_qkv(B=2, H=3, T=5, S=7, D=11, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        found = attend_in_steps(q, k, v)
    torch.testing.assert_close(found, attend_in_steps(q, k, v), rtol=0, atol=0)


def test_a_bias_is_added_to_the_scaled_scores_and_may_hide_keys():
    q, k, v = random_qkv(B=2, H=4, T=3, S=5, D=7, Hkv=2)
    bias = torch.randn(2, 1, 3, 5, dtype=torch.float64)
    bias[0, :, :, 4] = -torch.inf
    context, weights = attend_in_steps(q, k, v, scale=0.3, bias=bias)
    scaled = q @ k.repeat_interleave(2, 1).mT * 0.3 + bias
    torch.testing.assert_close(weights, scaled.softmax(-1), **EXACT)
    torch.testing.assert_close(context, scaled.softmax(-1) @ v.repeat_interleave(2, 1), **EXACT)


def test_the_steps_are_those_of_the_ladder_in_their_order():
    q, k, v = random_qkv(B=2, H=3, T=5, S=5, D=11)
    with trace() as steps:
        attend_in_steps(q, k, v, mask=causal(), dropout=0.5)
    assert [one.name for one in steps] == ["scores", "mask", "scaled", "weights", "dropout", "context"]


def test_a_trace_names_everything_that_is_added_to_the_scores():
    q, k, v = random_qkv(B=2, H=4, T=3, S=5, D=7)
    bias, slopes = torch.zeros(2, 1, 3, 5, dtype=torch.float64), alibi_slopes(4)
    cases = [(bias, None, "scaled + bias"), (None, slopes, "− slope × distance")]
    for added, alibi, words in [*cases, (bias, slopes, "− slope × distance + bias")]:
        assert trace(attend_in_steps, q, k, v, bias=added, alibi=alibi).find("bias").operation == words

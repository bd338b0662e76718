"""The dtype that attention is computed in; what a mask hides counts for nothing, even where it is NaN."""

import math

import pytest
import torch

from regard.attention import numerics
from regard.attention.numerics import clear_hidden, hidden_from_all, may_branch_on, softmax_over_visible, undo_nan


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bits_become_float32_and_others_stay(dtype):
    t = torch.randn(3, 5)
    assert torch.equal(numerics.at_least_float32(t.to(dtype)), t.to(dtype).float())
    assert numerics.at_least_float32(t) is t
    assert numerics.at_least_float32(t.double()).dtype is torch.float64


def test_only_emulated_dtypes_on_a_cpu_are_computed_in_float32(monkeypatch):
    monkeypatch.setattr(numerics, "EMULATED", frozenset({torch.bfloat16}))
    half, brain = torch.zeros(3, dtype=torch.float16), torch.zeros(3, dtype=torch.bfloat16)
    assert numerics.in_float32_if_emulated(half) is half
    assert numerics.in_float32_if_emulated(brain).dtype is torch.float32
    on_meta = brain.to("meta")
    assert numerics.in_float32_if_emulated(on_meta) is on_meta


def test_autocast_is_off_inside_the_block():
    x = torch.randn(3, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with numerics.without_autocast(x):
            assert (x @ x.mT).dtype is torch.float32
        assert (x @ x.mT).dtype is torch.bfloat16


def test_keys_that_nobody_sees_are_found_over_all_heads_and_queries():
    allowed = torch.zeros(2, 3, 5, 7, dtype=torch.bool)
    allowed[0, 1, 2, 3] = allowed[1, 0, 4, 6] = True
    wanted = torch.ones(2, 1, 7, 1, dtype=torch.bool)
    wanted[0, 0, 3, 0] = wanted[1, 0, 6, 0] = False
    assert torch.equal(hidden_from_all(allowed), wanted)


def test_only_what_nobody_sees_is_cleared_and_only_where_it_is_not_finite():
    allowed = torch.ones(2, 1, 5, 7, dtype=torch.bool)
    allowed[0, :, :, 3] = False
    keys = torch.randn(2, 3, 7, 11)
    keys[0, 1, 3, 2] = keys[1, 2, 3, 5] = math.nan
    wanted = keys.clone()
    wanted[0, 1, 3, 2] = 0
    torch.testing.assert_close(clear_hidden(keys, allowed), wanted, rtol=0, atol=0, equal_nan=True)


def test_a_row_that_sees_nothing_has_weights_and_gradient_zero():
    allowed = torch.ones(1, 1, 3, 5, dtype=torch.bool)
    allowed[..., 1, :] = False
    scaled = torch.randn(2, 3, 3, 5, dtype=torch.float64, requires_grad=True)
    weights = softmax_over_visible(scaled.masked_fill(~allowed, -torch.inf), allowed)
    (weights * torch.randn_like(weights)).sum().backward()
    wanted = scaled.detach().softmax(-1).masked_fill(~allowed, 0)
    torch.testing.assert_close(weights.detach(), wanted)
    assert torch.equal(scaled.grad[:, :, 1], torch.zeros(2, 3, 5, dtype=torch.float64))


def test_a_nan_reaches_only_the_rows_that_see_it():
    allowed = torch.ones(3, 3, dtype=torch.bool).tril()[None, None]
    weights = torch.full((1, 2, 3, 3), 0.5).masked_fill(~allowed, 0)
    v = torch.ones(1, 2, 3, 2)
    v[0, 1, 2, 0] = math.nan
    context = undo_nan(weights @ v, weights, v, allowed)
    wanted = torch.tensor([0.5, 1.0, 1.5]).view(1, 1, 3, 1).expand(1, 2, 3, 2).clone()
    wanted[0, 1, 2, 0] = math.nan
    torch.testing.assert_close(context, wanted, equal_nan=True)


def test_python_does_not_read_the_values_of_a_meta_tensor():
    assert may_branch_on(torch.zeros(2))
    assert not may_branch_on(torch.zeros(2, device="meta"))

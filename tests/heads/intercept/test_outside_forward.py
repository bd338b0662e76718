"""Our own computation is not intercepted, nor in the model's precision; a recomputation is recognised."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from regard.heads.intercept.outside_forward import OwnComputation, in_backward, is_recomputed


class Intercepting:
    in_callback = False


def test_own_computation_is_in_full_precision_and_not_intercepted():
    x, who = torch.randn(3, 5), Intercepting()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with OwnComputation(who, "cpu"):
            assert (x @ x.T).dtype is torch.float32
            assert who.in_callback
        assert (x @ x.T).dtype is torch.bfloat16
    assert not who.in_callback


def test_an_error_ends_the_computation():
    who = Intercepting()
    with pytest.raises(ValueError, match="no"), OwnComputation(who, "cpu"), OwnComputation(who, "cpu"):
        raise ValueError("no")
    assert not who.in_callback


def test_a_recomputation_is_recognised():
    said = []

    def run(x):
        said.append((is_recomputed(), in_backward()))
        return 2 * x.sin()

    checkpoint(run, torch.randn(3, requires_grad=True), use_reentrant=False).sum().backward()
    run(torch.randn(3))
    assert said[0] == (True, False)
    assert said[1][1]
    assert said[-1] == (False, False)

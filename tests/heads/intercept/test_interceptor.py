"""What the interceptor knows of the modules that run: recomputations."""

import torch
from torch.utils.checkpoint import checkpoint

from regard.heads.intercept.interceptor import in_backward, is_recomputed


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

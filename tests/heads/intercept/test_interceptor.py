"""What the interceptor knows of the modules that run: recomputations, and modules that need not be recorded."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from regard.heads.intercept.intercept import intercept
from regard.heads.intercept.interceptor import in_backward, is_ordinary, is_recomputed


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


def test_a_module_that_ran_without_a_doubt_is_not_recorded_again():
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(12, 36)

        def forward(self, x):
            q, k, v = self.qkv(x).view(2, 5, 3, 3, 4).permute(2, 0, 3, 1, 4)
            return F.scaled_dot_product_attention(q, k, v)

    model, x = Layer(), torch.randn(2, 5, 12)
    assert not is_ordinary(model)
    for _ in range(2):
        with intercept(model, lambda *_: None):
            model(x)
        assert is_ordinary(model)

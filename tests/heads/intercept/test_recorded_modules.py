"""A module that ran once without a doubt is not recorded again."""

import torch
import torch.nn.functional as F
from torch import nn

from regard.heads.intercept.intercept import intercept
from regard.heads.intercept.recorded_modules import forget_ordinary, is_ordinary


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
    forget_ordinary(model)
    assert not is_ordinary(model)

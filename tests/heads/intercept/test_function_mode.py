"""The function mode is off where nothing is watched, and passes errors on."""

import pytest
import torch
from torch import nn
from torch.overrides import _get_current_function_mode_stack

import regard
from helpers import Textbook
from regard.heads.intercept.function_mode import FunctionMode


class Asking(nn.Module):
    """Says which modes are on while it runs."""

    def __init__(self):
        super().__init__()
        self.attention, self.modes = Textbook(8, 8, 16, 0.0, 2), []

    def forward(self, x):
        self.modes = [type(mode) for mode in _get_current_function_mode_stack()]
        return self.attention(x)


def test_the_mode_is_on_inside_the_model_only():
    model = Asking()
    with regard.watch(model):
        model(torch.randn(1, 5, 8))
        assert _get_current_function_mode_stack() == []
    assert model.modes == [FunctionMode]


def test_an_error_of_the_model_is_raised():
    model = Asking()
    with pytest.raises(ValueError, match="x has width 9 but this linear layer takes 8"), regard.watch(model):
        model(torch.randn(1, 5, 9))


class Masked(nn.Module):
    """Attention whose weights are changed after their softmax."""

    def forward(self, x):
        scores = (2 * x).view(x.shape) @ x.mT
        return scores.softmax(-1).masked_fill(torch.eye(x.shape[-2]).bool(), 0.0).contiguous() @ x


def test_what_follows_a_softmax_is_seen_though_other_functions_pass_unseen():
    x, model = torch.randn(2, 5, 7), Masked()
    with regard.watch(model) as seen:
        model(x)
    weights = ((2 * x) @ x.mT).softmax(-1).masked_fill(torch.eye(5).bool(), 0.0)
    torch.testing.assert_close(seen[0, 0].weights(), weights)

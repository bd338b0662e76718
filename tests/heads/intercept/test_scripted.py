"""Functions in TorchScript: attention inside is named, and anything else runs as before."""

import warnings

import pytest
import torch
from torch import Tensor, nn

import regard

B, T, E = 2, 7, 12

with warnings.catch_warnings():
    warnings.simplefilter("ignore")

    @torch.jit.script
    def attend(x: Tensor) -> Tensor:
        return torch.softmax(x @ x.transpose(-1, -2), dim=-1) @ x

    @torch.jit.script
    def gate(x: Tensor) -> Tensor:
        return x * torch.sigmoid(x)


class Model(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.first, self.layer = nn.MultiheadAttention(E, 3, batch_first=True), Scripted(function)

    def forward(self, x):
        return self.layer(self.first(x, x, x)[0])


class Scripted(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def test_attention_in_a_scripted_function_is_named():
    model, x = Model(attend), torch.randn(B, T, E)
    expected = model(x)
    said = "the attention in layer is not reported: it calls attend, which is TorchScript"
    with pytest.warns(UserWarning, match=said), regard.watch(model) as seen:
        assert torch.equal(model(x), expected)
    assert [layer.name for layer in seen] == ["first"]


def test_other_scripted_functions_are_not():
    model = Model(gate)
    with regard.watch(model) as seen:
        model(torch.randn(B, T, E))
    assert [layer.name for layer in seen] == ["first"]


def test_scripted_functions_are_as_before_after_a_watch():
    before = torch.jit.ScriptFunction.__call__
    with regard.watch(model := Model(gate)):
        model(torch.randn(B, T, E))
    assert torch.jit.ScriptFunction.__call__ is before

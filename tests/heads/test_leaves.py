"""Leaves make no attention, whatever they are called with; what may make one is no leaf."""

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import _get_current_function_mode_stack

import regard
from helpers import Textbook
from regard.heads.function_mode import FunctionMode
from regard.heads.leaves import KNOWN, is_leaf


class RootMeanSquare(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.epsilon = nn.Parameter(torch.ones(7)), 1e-6

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon))


class Tanh(nn.Module):
    def forward(self, x):
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class Product(nn.Module):
    def forward(self, q, k):
        return q @ k.view(k.shape)


class Softmax(nn.Module):
    def forward(self, scores):
        return F.softmax(scores, -1)


class Hidden(nn.Module):
    """Attention behind a name of its own."""

    def __init__(self):
        super().__init__()
        self.mix = F.scaled_dot_product_attention

    def forward(self, q, k, v):
        return self.mix(q, k, v)


class Method(nn.Module):
    """Attention behind the name of an elementary function."""

    def view(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v)

    def forward(self, q, k, v):
        return self.view(q, k, v)


class Global(nn.Module):
    def forward(self, q, k, v):
        return attend(q, k, v)


class Inner(nn.Module):
    def forward(self, q, k, v):
        return (lambda: attend(q, k, v))()


def attend(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


def test_elementwise_modules_are_leaves():
    assert all(is_leaf(module) for module in (RootMeanSquare(), Tanh(), nn.Linear(3, 5), nn.Dropout(0.1)))
    assert all(issubclass(kind, nn.Module) for kind in KNOWN)


def test_what_may_attend_is_no_leaf():
    modules = (
        Product(),
        Softmax(),
        Hidden(),
        Method(),
        Global(),
        Inner(),
        nn.Sequential(nn.Linear(3, 5)),
        nn.Softmax(-1),
    )
    assert not any(is_leaf(module) for module in modules)


def test_a_forward_that_was_replaced_makes_it_no_leaf():
    module = Tanh()
    module.forward = attend
    assert not is_leaf(module)


class Model(nn.Module):
    """A leaf that attends in a hook, or says which modes are on."""

    def __init__(self):
        super().__init__()
        self.leaf, self.attention = nn.Linear(8, 8), Textbook(8, 8, 16, 0.0, 2)

    def forward(self, x):
        return self.attention(self.leaf(x))


def modes_in(model):
    modes, real = [], F.linear

    def linear(*args):
        modes.append([type(mode) for mode in _get_current_function_mode_stack()])
        return real(*args)

    torch.nn.functional.linear = linear
    try:
        with regard.watch(model):
            model(torch.randn(1, 5, 8))
    finally:
        torch.nn.functional.linear = real
    return modes[0]


def test_a_leaf_runs_without_the_mode():
    assert modes_in(Model()) == []


def test_attention_in_a_hook_of_a_leaf_is_seen():
    model, attention = Model(), Textbook(8, 8, 16, 0.0, 2)
    model.leaf.register_forward_hook(lambda module, args, out: attention(out))
    assert modes_in(model) == [FunctionMode]
    with regard.watch(model) as seen:
        model(torch.randn(1, 5, 8))
    assert seen.layers == ["", "attention"]

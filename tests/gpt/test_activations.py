"""The table of activations has an entry for every name that a config may use."""

import math
from typing import get_args

import pytest
import torch

from regard.gpt.activations import ACTIVATIONS, FeedForwardName

FORMULAS = {
    "gelu": lambda x: x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    "gelu_exact": lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2,
    "swiglu": lambda x: x / (1 + math.exp(-x)),
}


def test_the_names_of_the_type_are_the_names_of_the_table():
    assert get_args(FeedForwardName) == tuple(ACTIVATIONS)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_each_function_is_its_formula(name):
    x = torch.linspace(-5, 5, 101, dtype=torch.float64)
    expected = torch.tensor([FORMULAS[name](t) for t in x.tolist()], dtype=torch.float64)
    torch.testing.assert_close(ACTIVATIONS[name].function(x), expected)


def test_only_swiglu_is_gated():
    assert [name for name, activation in ACTIVATIONS.items() if activation.gated] == ["swiglu"]

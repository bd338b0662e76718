"""Errors that every learner meets say the rule, the values and the remedy."""

import re

import pytest
import torch
from torch import nn

from regard import trace
from regard.traces.failures import explain_failure


def test_a_forgotten_super_init_is_explained_for_a_module_and_for_an_error():
    class Forgetful(nn.Module):
        def __init__(self):
            self.W_query = nn.Linear(3, 2)

    message = r"Forgetful.__init__ .*never called super\(\).__init__\(\)"
    assert re.match(message, str(explain_failure(Forgetful.__new__(Forgetful))))
    with pytest.raises(AttributeError, match="cannot assign module") as caught:
        Forgetful()
    assert re.match(message, str(explain_failure(caught.value)))
    assert explain_failure(nn.Linear(3, 2)) is None


@pytest.mark.parametrize("sizes", [(2, 5, 6), ((2, 5, 6),)], ids=["numbers", "a tuple"])
def test_view_after_transpose_says_contiguous(sizes):
    class Joined(nn.Module):
        def forward(self, x):
            return x.transpose(1, 2).view(*sizes)

    message = (
        r"view\(2, 5, 6\) needs memory in order, but this 2×5×3×2 tensor was transposed \(strides \(30, 2, 10, 1\)\); "
        r"call .contiguous\(\) before .view\(\), or use .reshape\(2, 5, 6\)"
    )
    with pytest.raises(ValueError, match=message):
        trace(Joined(), torch.randn(2, 3, 5, 2))


@pytest.mark.parametrize("shape", [(2, 7, 5), (7, 5), (5,)])
def test_a_wrong_input_width_says_both_widths(shape):
    message = r"x has width 5 but this linear layer takes 6; project it first, or build the layer with 5"
    with pytest.raises(ValueError, match=message):
        trace(nn.Linear(6, 3), torch.randn(shape))


def test_any_other_error_is_left_as_it_is():
    class Wrong(nn.Module):
        def forward(self, x):
            return x @ x

    with pytest.raises(RuntimeError, match=r"must match|cannot be multiplied") as caught:
        trace(Wrong(), torch.randn(3, 5))
    assert caught.value.__cause__ is None


def test_a_call_by_keyword_that_fails_keeps_its_own_error():
    with pytest.raises(RuntimeError, match="cannot be multiplied"), trace():
        nn.functional.linear(input=torch.randn(3, 5), weight=torch.randn(2, 4))

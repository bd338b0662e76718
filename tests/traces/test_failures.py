"""Errors that every learner meets say the rule, the values and the remedy."""

import functools

import pytest
import torch
from torch import nn

from regard import ladder, trace


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


def test_a_function_is_traced_as_a_layer_is():
    t = trace(ladder.simplified_attention, ladder.VECTORS)
    assert t.names == ["x", "scores", "weights", "context"]
    assert t.table().startswith("  simplified_attention · 4 steps")
    torch.testing.assert_close(t.out, ladder.simplified_attention(ladder.VECTORS))
    assert trace(lambda x: x.softmax(-1), torch.ones(3, 5)).names == ["weights"]
    assert trace(functools.partial(torch.softmax, dim=-1), torch.ones(3, 5)).names == ["weights"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (ladder.SelfAttention, torch.ones(3)),
            r"SelfAttention is a class; make one first: trace\(SelfAttention\(…\), x\)",
        ),
        (
            (torch.ones(3), nn.Linear(3, 2)),
            r"the layer first, then its inputs, but a tensor came first; write trace\(layer",
        ),
        (
            (torch.ones(3, 2),),
            r"takes a layer or a function, .* but got a tensor of shape \(3, 2\); write trace\(layer, x\)",
        ),
        (("weights",), r"takes a layer or a function, and then its inputs, but got 'weights'"),
        ((nn.Linear(3, 2).state_dict(), torch.ones(3)), "but got an object of type OrderedDict"),
        ((None, torch.ones(3)), r"trace\(\) without a layer takes no arguments; write trace\(layer, x\)"),
    ],
    ids=["class", "swapped", "tensor", "text", "state_dict", "none"],
)
def test_what_cannot_be_traced_is_refused_with_the_remedy(arguments, message):
    with pytest.raises(TypeError, match=message):
        trace(*arguments)


@pytest.mark.parametrize(
    ("other", "given"),
    [
        (nn.Linear(3, 2), "an object of type Linear"),
        (torch.ones(3), r"a tensor of shape \(3,\)"),
        (nn.Linear, "the class Linear"),
    ],
    ids=["layer", "tensor", "class"],
)
def test_diff_says_that_it_takes_a_trace(other, given):
    with pytest.raises(
        TypeError, match=rf"takes another trace, but other is {given}; write t.diff\(regard.trace\(layer, x"
    ):
        trace(nn.Linear(3, 2), torch.ones(5, 3)).diff(other)

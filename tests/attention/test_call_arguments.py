"""The arguments of attend() as one value."""

import math

import pytest
import torch

from regard.attention.call_arguments import checked_call, scaling_in_words, usual_scale
from regard.attention.masks import causal


def sizes(**changed):
    shapes = {"q": (2, 6, 5, 8), "k": (2, 3, 7, 8), "v": (2, 3, 7, 11)} | changed
    return [torch.zeros(shapes[name]) for name in "qkv"]


def test_what_is_left_out_has_its_usual_value():
    call = checked_call(*sizes(), None, None, 0.0, None)
    assert (call.sizes, call.scale, call.dropout) == ((2, 6, 5, 7), 1 / math.sqrt(8), 0.0)


def test_a_bias_that_hides_a_key_is_part_of_the_mask_and_nan_hides_nothing():
    bias = torch.zeros(1, 1, 5, 7)
    bias[..., 2], bias[..., 3], bias[..., 4] = -torch.inf, math.nan, torch.finfo(torch.float32).min
    call = checked_call(*sizes(), causal(), None, 0.0, None, bias)
    wanted = torch.ones(5, 7, dtype=torch.bool).tril(2)
    wanted[:, [2, 4]] = False
    assert torch.equal(call.mask.dense(5, 7).squeeze(), wanted)


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"v": (2, 3, 5, 11)}, "every key needs a value"),
        ({"k": (2, 3, 7, 9)}, "batch and head width must be the same"),
        ({"k": (2, 4, 7, 8), "v": (2, 4, 7, 8)}, "6 query heads cannot share 4 key heads evenly"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        checked_call(*sizes(**changed), None, None, 0.0, None)


def test_the_scale_is_shown_as_a_root_where_it_is_the_usual_one():
    assert scaling_in_words(checked_call(*sizes(), None, None, 0.0, None)) == "scores / √8"
    assert scaling_in_words(checked_call(*sizes(), None, 0.25, 0.0, None)) == "scores × 0.25"
    assert usual_scale(64) == 0.125

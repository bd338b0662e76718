"""One attention call as one value, and the arguments of attend() that make it."""

import dataclasses
import math

import pytest
import torch

from helpers import random_qkv
from regard.attention.call import QK, Call, checked_call, scaling_in_words, usual_scale
from regard.attention.masks import EVERYTHING, causal


def test_sizes_and_shift_come_from_queries_and_keys():
    q, k, v = random_qkv(B=2, H=6, T=5, S=11, D=7, Hkv=3)
    for call in (QK(q=q, k=k), Call(q=q, k=k, v=v)):
        assert (call.sizes, call.shift, call.device) == ((2, 6, 5, 11), 6, q.device)
    assert all(a is b for a, b in zip(Call(q=q, k=k, v=v).qkv, (q, k, v), strict=True))


def test_a_call_hides_nothing_and_adds_nothing_unless_given():
    q, k, v = random_qkv(B=2, H=3, T=5, S=7, D=4)
    call = Call(q=q, k=k, v=v)
    assert (call.mask, call.scale, call.bias, call.alibi, call.dropout) == (EVERYTHING, 1.0, None, None, 0.0)


def test_a_call_needs_its_tensors():
    # Python names all that are missing, the run-time shape checks the first.
    with pytest.raises(TypeError, match=r"'q', 'k', and 'v'$|missing a required argument: 'q'$"):
        Call()


def test_a_call_cannot_be_changed():
    q, k, _ = random_qkv(B=2, H=3, T=5, S=7, D=4)
    with pytest.raises(dataclasses.FrozenInstanceError, match="scale"):
        QK(q=q, k=k).scale = 2.0


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

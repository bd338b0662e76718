"""One attention call as one value."""

import dataclasses

import pytest
import torch

from helpers import random_qkv
from regard.attention.call import Call
from regard.attention.masks import EVERYTHING


def test_sizes_and_shift_come_from_queries_and_keys():
    q, k, v = random_qkv(B=2, H=6, T=5, S=11, D=7, Hkv=3)
    call = Call(q=q, k=k, v=v)
    assert (call.sizes, call.shift, call.device) == ((2, 6, 5, 11), 6, q.device)
    assert all(a is b for a, b in zip(call.qkv, (q, k, v), strict=True))


def test_sizes_come_from_the_weights_where_a_model_computed_them():
    call = Call(weights=torch.rand(2, 3, 5, 7))
    assert (call.sizes, call.shift) == ((2, 3, 5, 7), 2)


def test_a_call_hides_nothing_and_adds_nothing_unless_given():
    call = Call()
    assert (call.mask, call.scale, call.bias, call.alibi, call.dropout) == (EVERYTHING, 1.0, None, None, 0.0)


def test_a_call_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError, match="scale"):
        Call().scale = 2.0

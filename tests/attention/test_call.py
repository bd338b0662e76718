"""One attention call as one value."""

import dataclasses

import pytest

from helpers import random_qkv
from regard.attention.call import QK, Call
from regard.attention.masks import EVERYTHING


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

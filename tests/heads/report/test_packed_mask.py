"""A packed mask is the dense mask that it was made of."""

import copy
import pickle

import pytest
import torch
from torch.testing import assert_close

from regard.attention.masks import Dense, causal, dense
from regard.heads.report.packed_mask import PackedMask, packed_bits


@pytest.mark.parametrize("shape", [(5, 7), (2, 5, 7), (2, 3, 5, 7), (1, 1, 1, 1), (0, 7), (3, 8)])
def test_bits_come_back(shape):
    seen = torch.rand(shape) < 0.5
    bits = packed_bits(seen)
    assert bits.numel() == -(-seen.numel() // 8)
    assert_close(PackedMask(bits, shape).seen, seen)


def test_it_is_a_dense_mask_that_is_unpacked_once_and_on_demand():
    seen = torch.rand(2, 3, 5, 7) < 0.5
    mask = PackedMask(packed_bits(seen), (2, 3, 5, 7))
    assert isinstance(mask, Dense)
    assert mask.name == dense(seen).name
    mask.check(2, 3, 5, 7)
    assert "seen" not in vars(mask)
    assert mask.seen is mask.seen
    assert_close((mask & causal()).dense(5, 7), (dense(seen) & causal()).dense(5, 7))


def test_a_shape_that_does_not_fit_is_refused_without_unpacking():
    mask = PackedMask(torch.zeros(0, dtype=torch.uint8), (5, 10**12))
    with pytest.raises(ValueError, match=r"mask has shape \(5, 1000000000000\) but weights here are \(T=5, S=7\)"):
        mask.check(2, 3, 5, 7)


def test_copies_have_the_same_bits():
    seen = torch.rand(5, 7) < 0.5
    mask = PackedMask(packed_bits(seen), (5, 7))
    for again in (copy.deepcopy(mask), pickle.loads(pickle.dumps(mask))):
        assert_close(again.seen, seen)

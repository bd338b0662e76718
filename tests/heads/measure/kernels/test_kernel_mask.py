"""Masks as kernels take them: causal, window and padding as numbers, everything else as a tensor."""

import pytest
import torch

from heads.dense import random_call
from regard import causal, documents, padding, window
from regard.attention.masks import key_padding
from regard.heads.measure.kernels.kernel_mask import mask_for_kernels

KEEP = torch.tensor([[True, False, True, True, False], [False, True, True, False, True]])


def test_what_kernels_compute_is_taken_out_of_the_mask():
    mask, rest = mask_for_kernels(random_call(2, 3, 4, 5, mask=causal() & window(3) & padding(KEEP)).attention)
    assert (mask.shift, mask.causal, mask.window, rest) == (1, True, 3, None)
    assert torch.equal(mask.keys, KEEP)


def test_the_rest_is_written_out_for_a_part_of_the_queries():
    rule = documents([0, 0, 1, 1, 1])
    mask, rest = mask_for_kernels(random_call(2, 3, 4, 5, mask=causal() & rule).attention)
    assert mask.dense is None
    part = mask.part(1, 3, rest, 5, torch.device("cpu"))
    assert (part.shift, part.causal) == (2, True)
    assert torch.equal(part.dense, rule.dense(4, 5)[:, :, 1:3])
    assert part.dense.is_contiguous()


@pytest.mark.parametrize("shape, rows", [((4, 5), 2), ((2, 1, 4, 1), 2), ((3, 1, 5), 1)], ids=str)
def test_a_bias_gets_four_axes_and_the_rows_of_its_part(shape, rows):
    bias = torch.randn(shape)
    mask, rest = mask_for_kernels(random_call(2, 3, 4, 5, bias=bias).attention)
    part = mask.part(1, 3, rest, 5, torch.device("cpu"))
    whole = bias.reshape((1,) * (4 - bias.dim()) + bias.shape)
    assert torch.equal(part.bias, whole[:, :, 1:3] if rows == 2 else whole)


@pytest.mark.parametrize("keys", [torch.tensor([3, 0]), torch.tensor([[True] * 3 + [False] * 2, [False] * 5])], ids=str)
def test_padding_is_given_as_lengths_or_key_by_key(keys):
    expected = torch.tensor([[True] * 3 + [False] * 2, [False] * 5])
    assert torch.equal(key_padding(keys, 5, torch.device("cpu")), expected)

"""Copies of what a model passed to its attention."""

import torch
from torch.testing import assert_close

from heads.dense import random_call
from regard.attention.masks import causal, padding
from regard.heads.calls.call import TextIds
from regard.heads.calls.copies import Copies, copy_of
from regard.heads.report.report import Seen


def test_a_bias_used_in_every_layer_is_kept_once_and_one_that_changed_in_between_is_not():
    bias = torch.randn(1, 1, 5, 5).expand(2, 3, 5, 5)
    seen = Seen()
    seen.add(0, 0, random_call(bias=bias))
    seen.add(0, 1, random_call(bias=bias))
    before = bias.clone()
    bias[0, 0].add_(1)
    seen.add(0, 2, random_call(bias=bias))
    first, second, third = (seen[i].record.steps[0].call.attention.bias for i in range(3))
    assert first.data_ptr() == second.data_ptr()
    assert first.untyped_storage().nbytes() == 5 * 5 * 4
    assert_close(first, before)
    assert_close(third, before + 1)


def test_a_copy_of_an_expanded_tensor_is_as_small():
    small = torch.randn(3, 1, 5)
    copy = copy_of(small.expand(3, 7, 5))
    assert_close(copy, small.expand(3, 7, 5))
    assert copy.untyped_storage().nbytes() == 3 * 5 * 4


def test_a_mask_in_a_mask_is_copied_and_one_without_tensors_is_not():
    keep = torch.tensor([[True, True, False]])
    copies = Copies()
    own = copies.inside(causal() & padding(keep))
    keep.fill_(True)
    assert torch.equal(own.dense(3)[0, 0, 2], torch.tensor([True, True, False]))
    assert copies.inside(causal()) is causal()


def test_tensors_in_a_function_are_copied_also_where_it_refers_to_itself():
    limits = torch.tensor([2, 5])

    def allows(n, depth=1, *, other=limits):
        return n < limits[0] if not depth else allows(n, depth - 1) & (n < other[1])

    own = Copies().inside(allows)
    limits.fill_(0)
    assert bool(own(torch.tensor(1)))
    assert not bool(allows(torch.tensor(1)))


def test_lists_and_dictionaries_keep_their_kind():
    inside = Copies().inside({"a": [torch.ones(2), 3], "b": (torch.zeros(1),)})
    assert type(inside["a"]) is list
    assert inside["a"][1] == 3
    assert type(inside["b"]) is tuple


def test_token_ids_of_all_layers_are_copied_once_and_again_after_a_change():
    ids, copies = torch.tensor([[3, 5, 7, 5, 3]]), Copies()
    first, second = (copies.of_call(random_call(tokens=ids), False).origin.tokens for _ in range(2))
    ids[0, 0] = 2
    third = copies.of_call(random_call(tokens=ids), False).origin.tokens
    assert first is second
    assert (first.tolist(), third.tolist()) == ([[3, 5, 7, 5, 3]], [[2, 5, 7, 5, 3]])


def test_texts_of_cross_attention_are_copied_with_their_padding():
    ids, real = torch.tensor([[3, 5]]), torch.tensor([[True, False]])
    text = Copies().of_call(random_call(key_text=TextIds(ids, real)), False).origin.key_text
    ids.zero_()
    real.fill_(True)
    assert (text.ids.tolist(), text.real.tolist()) == ([[3, 5]], [[True, False]])

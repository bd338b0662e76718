"""Fingerprints of keys."""

import pytest
import torch

from heads.made_calls import made_call
from regard.heads.calls import same_keys
from regard.heads.calls.same_keys import fingerprint, fingerprint_of, fingerprint_of_values, texts_of_before


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_a_fingerprint_is_of_one_key_and_of_all_its_bits(dtype, monkeypatch):
    keys = torch.randn(2, 3, 7, 5).to(dtype)
    marks = fingerprint(keys)
    assert marks.shape == (2, 7)
    assert len(set(marks.flatten().tolist())) == 14
    assert torch.equal(fingerprint(keys[:, :, 2:5].mT.contiguous().mT), marks[:, 2:5])
    monkeypatch.setattr(same_keys, "_AT_ONCE", {"cpu": 1})
    assert torch.equal(fingerprint(keys), marks)
    keys[1, 2, 4, 3] = torch.nextafter(keys[1, 2, 4, 3], keys.new_tensor(torch.inf))
    assert (fingerprint(keys) != marks).nonzero().tolist() == [[1, 4]]


def test_numbers_that_change_places_in_a_key_change_its_fingerprint():
    keys = torch.arange(6.0).view(1, 2, 1, 3)
    others = [keys.flip(1), keys.flip(3), -keys]
    assert len({fingerprint(one).item() for one in (keys, *others)}) == 4


def test_keys_that_are_written_out_for_each_query_head_are_the_same_keys():
    keys = torch.randn(2, 3, 7, 5)
    assert torch.equal(fingerprint(keys.repeat_interleave(4, 1)), fingerprint(keys))
    keys[:, :, 5:] = 0  # slots of a static cache that are not written
    assert torch.equal(fingerprint(keys)[:, :5], fingerprint(keys[:, :, :5]))
    assert torch.equal(fingerprint(keys.repeat_interleave(4, 1)), fingerprint(keys))
    assert not torch.equal(fingerprint(keys[:, [0, 0, 1]]), fingerprint(keys[:, :2]))


def test_keys_that_were_not_kept_have_no_fingerprint_unless_it_was_computed():
    call = made_call("", q=torch.empty(2, 3, 1, 0), k=torch.empty(2, 1, 5, 0))
    assert fingerprint_of(call) is None
    assert texts_of_before(call, call, 4) is None


def test_values_in_any_layout_have_a_fingerprint_for_each_text():
    values = torch.randn(2, 3, 7, 5)
    marks, sizes = fingerprint(values), (2, 3, 4, 7)
    assert torch.equal(fingerprint_of_values(values, sizes), marks)
    assert torch.equal(fingerprint_of_values(values.flatten(0, 1), sizes), marks)
    assert torch.equal(fingerprint_of_values(values[:, 0], sizes), fingerprint(values[:, :1]))
    assert torch.equal(fingerprint_of_values(values[0, 0], sizes), fingerprint(values[:1, :1]).expand(2, 7))
    assert fingerprint_of_values(values, (2, 3, 4, 5)) is None
    assert fingerprint_of_values(torch.randn(5, 7, 5), sizes) is None

"""The statistics of tiles of several heads, against their definitions."""

import pytest
import torch
from torch.testing import assert_close

from heads import dense
from heads.dense import random_call
from regard.attention.kernels import exact_weights, tile_statistics
from regard.attention.kernels.exact_weights import logsumexp
from regard.attention.kernels.tile_statistics import one_pass
from regard.heads.call import WatchedCall

CLOSE = {"rtol": 2e-5, "atol": 2e-6, "equal_nan": True, "check_dtype": False}


@pytest.fixture(params=["all at once", "in tiles"])
def attend_in_tiles(request, monkeypatch):
    if request.param == "in tiles":
        monkeypatch.setattr(exact_weights, "FEW", 0)
        monkeypatch.setattr(tile_statistics, "GROUP_ROWS", 2)
        monkeypatch.setattr(tile_statistics, "GROUP_WEIGHTS", 2 * 2 * 7)  # two heads of 7 keys
    return request.param == "in tiles"


def test_a_models_own_weights_are_not_changed(attend_in_tiles):
    p = torch.rand(1, 2, 5, 7).softmax(-1)
    before = p.clone()
    counted = torch.tensor([True, False, True, True, False]).expand(1, 2, 5)
    result = one_pass(WatchedCall("", weights=p), torch.zeros(1, 2, 5), counted, torch.zeros(0, 1, 5))
    assert torch.equal(p, before)
    assert_close(result["received"], (p * counted[..., None]).sum(2))


@pytest.mark.usefixtures("attend_in_tiles")
def test_weights_on_chosen_keys_are_zero_where_no_key_is_chosen():
    call = random_call(2, 3, 5, 7)
    targets = torch.tensor([[[6, -1, 0, 3, 3], [0, 1, 2, -1, 6]], [[-1] * 5, [5] * 5]])  # (N, B, T)
    p = dense.probabilities(call)
    result = one_pass(call, logsumexp(call), torch.ones(2, 3, 5, dtype=torch.bool), targets)
    expected = (
        p[None].expand(2, -1, -1, -1, -1).gather(-1, targets[:, :, None, :, None].clamp(min=0).expand(2, 2, 3, 5, 1))
    )
    assert_close(result["chosen"], torch.where(targets[:, :, None] >= 0, expected[..., 0], 0.0), **CLOSE)


@pytest.mark.parametrize("size", [7, 512, 640, 1031])
def test_the_largest_of_a_row_is_found_in_blocks_and_after_them(size):
    x = torch.randn(11, size)
    x[0, -1] = x[1, 0] = 9.0
    most, place = tile_statistics._largest(x)
    assert_close(most, x.amax(-1))
    assert_close(place, x.argmax(-1))

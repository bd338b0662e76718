"""Exact weights in tiles, against softmax written out."""

import math

import pytest
import torch
from torch.testing import assert_close

from heads import dense
from heads.dense import random_call
from heads.test_statistics import masks
from regard import alibi_slopes, causal, window
from regard.attention.kernels import exact_weights
from regard.attention.kernels.exact_weights import Tile, logsumexp, one_pass, rows_of, tiles, weights
from regard.heads.call import WatchedCall

CLOSE = {"rtol": 2e-5, "atol": 2e-6, "equal_nan": True, "check_dtype": False}


@pytest.fixture(params=["all at once", "in tiles"])
def attend_in_tiles(request, monkeypatch):
    if request.param == "in tiles":
        monkeypatch.setattr(exact_weights, "FEW", 0)
        monkeypatch.setattr(exact_weights, "ROWS", 2)
    return request.param == "in tiles"


@pytest.mark.usefixtures("attend_in_tiles")
@pytest.mark.parametrize("name", list(masks(2, 5, 7)))
def test_the_log_of_the_sum_is_that_of_all_visible_scores(name):
    call = random_call(2, 3, 5, 7, mask=masks(2, 5, 7)[name], bias=torch.randn(3, 1, 7), alibi=alibi_slopes(3))
    assert_close(logsumexp(call), dense.scores(call).logsumexp(-1), **CLOSE)


def test_tiles_cover_every_weight_that_can_be_seen_once(monkeypatch):
    monkeypatch.setattr(exact_weights, "ROWS", 3)
    call = random_call(2, 3, 1031, 4099, 2, mask=causal() & window(5))
    seen = torch.zeros(1031, 4099, dtype=torch.long)
    for tile in tiles(call, head=1, batch=1):
        assert (tile.b, tile.h) == (1, 1)
        seen[tile.first : tile.last, tile.low : tile.high] += 1
    assert int(seen.max()) == 1
    assert bool(seen[call.mask.dense(1031, 4099)[0, 0]].all())
    assert len(list(tiles(call))) == 6 * math.ceil(1031 / rows_of(call))


@pytest.mark.parametrize("name", list(masks(2, 5, 7)))
def test_a_tile_has_the_weights_of_its_rows_and_keys(name):
    call = random_call(2, 3, 5, 7, mask=masks(2, 5, 7)[name])
    lse = dense.measure(call, {"lse"})["lse"].float()
    exact = weights(call, Tile(1, 2, 1, 4, 2, 7), lse)
    assert_close(exact, dense.probabilities(call)[1, 2, 1:4, 2:7], **CLOSE)


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
    most, place = exact_weights._largest(x)
    assert_close(most, x.amax(-1))
    assert_close(place, x.argmax(-1))

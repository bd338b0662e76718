"""Exact weights in tiles, against softmax written out."""

import math

import pytest
import torch
from torch.testing import assert_close

from heads import dense
from heads.dense import random_call
from heads.measure.test_statistics import masks
from regard import alibi_slopes, causal, window
from regard.heads.measure.kernels import exact_weights
from regard.heads.measure.kernels.exact_weights import HeadWeights, Tile, exact_logsumexp, rows_of, tiles

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
    assert_close(exact_logsumexp(call.attention), dense.scores(call).logsumexp(-1), **CLOSE)


def test_tiles_cover_every_weight_that_can_be_seen_once(monkeypatch):
    monkeypatch.setattr(exact_weights, "ROWS", 3)
    call = random_call(2, 3, 1031, 4099, 2, mask=causal() & window(5))
    seen = torch.zeros(1031, 4099, dtype=torch.long)
    for tile in tiles(call.attention, head=1, batch=1):
        assert (tile.b, tile.h) == (1, 1)
        seen[tile.first : tile.last, tile.low : tile.high] += 1
    assert int(seen.max()) == 1
    assert bool(seen[call.attention.mask.dense(1031, 4099)[0, 0]].all())
    assert len(list(tiles(call.attention))) == 6 * math.ceil(1031 / rows_of(call.attention))


@pytest.mark.parametrize("name", list(masks(2, 5, 7)))
def test_a_tile_has_the_weights_of_its_rows_and_keys(name):
    call = random_call(2, 3, 5, 7, mask=masks(2, 5, 7)[name])
    lse = dense.measure(call, {"lse"})["lse"].float()
    exact = HeadWeights(call.attention, 1, slice(2, 3), lse, dense.counted(call)).tile(Tile(1, 2, 1, 4, 2, 7))[0]
    assert_close(exact, dense.probabilities(call)[1, 2, 1:4, 2:7], **CLOSE)

"""The statistics of tiles of several heads, against their definitions."""

import pytest
import torch
from torch.testing import assert_close

from heads import dense
from heads.dense import random_call
from regard import causal
from regard.heads.calls.call import OwnWeights
from regard.heads.measure.kernels import exact_weights, tile_statistics
from regard.heads.measure.kernels.exact_weights import exact_logsumexp
from regard.heads.measure.kernels.tile_statistics import head_groups, pass_over_tiles

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
    result = pass_over_tiles(OwnWeights(p), torch.zeros(1, 2, 5), counted, torch.zeros(0, 1, 5), 0)
    assert torch.equal(p, before)
    assert_close(result["received"], (p * counted[..., None]).sum(2))


@pytest.mark.usefixtures("attend_in_tiles")
def test_weights_on_chosen_keys_are_zero_where_no_key_is_chosen():
    call = random_call(2, 3, 5, 7)
    targets = torch.tensor([[[6, -1, 0, 3, 3], [0, 1, 2, -1, 6]], [[-1] * 5, [5] * 5]])  # (N, B, T)
    p = dense.probabilities(call)
    result = pass_over_tiles(
        call.attention, exact_logsumexp(call.attention), torch.ones(2, 3, 5, dtype=torch.bool), targets, call.shift
    )
    expected = (
        p[None].expand(2, -1, -1, -1, -1).gather(-1, targets[:, :, None, :, None].clamp(min=0).expand(2, 2, 3, 5, 1))
    )
    assert_close(result["chosen"], torch.where(targets[:, :, None] >= 0, expected[..., 0], 0.0), **CLOSE)


@pytest.mark.parametrize("size", [7, 255, 256, 640, 1031])
def test_the_largest_of_a_row_is_found_in_blocks_and_after_them(size):
    x = torch.randn(11, size)
    x[0, -1] = x[1, 0] = 9.0
    most, place = tile_statistics._largest(x)
    assert_close(most, x.amax(-1))
    assert_close(place, x.argmax(-1))


def measured_in_threads(call, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        lse = exact_logsumexp(call.attention)
        return lse, pass_over_tiles(
            call.attention,
            lse,
            torch.ones_like(lse, dtype=torch.bool),
            torch.zeros(1, 2, lse.shape[2]).long(),
            call.shift,
        )
    finally:
        torch.set_num_threads(before)


def test_the_number_of_threads_changes_no_bit(monkeypatch):
    monkeypatch.setattr(exact_weights, "FEW", 0)
    monkeypatch.setattr(tile_statistics, "GROUP_WEIGHTS", 2 * 128 * 523)  # groups of two heads, the last of one
    call = random_call(2, 5, 523, D=11, mask=causal())
    lse, expected = measured_in_threads(call, 1)
    for threads in (2, 3):
        found_lse, found = measured_in_threads(call, threads)
        assert torch.equal(found_lse, lse)
        assert set(found) == set(expected)
        for name, values in expected.items():
            assert torch.equal(found[name], values), name


@pytest.mark.usefixtures("attend_in_tiles")
def test_autocast_does_not_round_the_statistics():
    call = random_call(2, 3, 5, 7)
    counted, targets = torch.ones(2, 3, 5, dtype=torch.bool), torch.zeros(1, 2, 5).long()
    arguments = call.attention, exact_logsumexp(call.attention), counted, targets, call.shift
    expected = pass_over_tiles(*arguments)
    with torch.autocast("cpu", torch.bfloat16):
        found = pass_over_tiles(*arguments)
    for name, values in expected.items():
        assert torch.equal(found[name], values), name


def test_an_error_in_a_head_reaches_the_caller(monkeypatch):
    monkeypatch.setattr(exact_weights, "FEW", 0)
    monkeypatch.setattr(tile_statistics, "GROUP_WEIGHTS", 1)

    class Broken(exact_weights.HeadScores):
        def scores(self, *arguments):
            if self.heads.start == 3:
                raise ValueError("head 3 has no scores")
            return super().scores(*arguments)

    call = random_call(2, 5, 7)
    lse = exact_logsumexp(call.attention)
    monkeypatch.setattr(exact_weights, "HeadScores", Broken)
    with pytest.raises(ValueError, match="head 3 has no scores"):
        pass_over_tiles(
            call.attention, lse, torch.ones_like(lse, dtype=torch.bool), torch.zeros(0, 2, 7).long(), call.shift
        )


@pytest.mark.parametrize("S, sizes", [(7, [5]), (128, [5]), (4096, [2, 2, 1]), (65536, [1, 1, 1, 1, 1])])
def test_a_group_has_the_heads_that_fit_a_tile(S, sizes):
    call = random_call(1, 5, 3, S, D=1)
    assert [heads.stop - heads.start for heads in head_groups(call.attention)] == sizes
    assert [h for heads in head_groups(call.attention) for h in range(5)[heads]] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_a_later_token_holds_harms_no_earlier_row(monkeypatch, bad):
    monkeypatch.setattr(exact_weights, "FEW", 0)
    call = random_call(2, 3, 13, mask=causal())
    counted, targets = torch.ones(2, 3, 13, dtype=torch.bool), torch.zeros(1, 2, 13).long()
    expected = pass_over_tiles(call.attention, exact_logsumexp(call.attention), counted, targets, call.shift)
    call.attention.k[:, :, 11:] = bad
    found = pass_over_tiles(call.attention, exact_logsumexp(call.attention), counted, targets, call.shift)
    for name in ("entropy", "distance", "largest", "largest_key", "chosen"):
        assert torch.equal(found[name][..., :11], expected[name][..., :11]), name

"""What is computed on demand. test_statistics.py compares all of it with its definition over masks and shapes."""

import pytest
import torch
from torch.testing import assert_close

from heads import dense
from heads.dense import random_call
from heads.made_calls import made_call
from regard.attention.masks import as_mask, causal, padding
from regard.heads.measure import on_demand
from regard.heads.measure.kernels import exact_weights

CLOSE = {"rtol": 2e-5, "atol": 2e-6, "equal_nan": True, "check_dtype": False}


def lse_of(call):
    return dense.measure(call, {"lse"})["lse"].float()


@pytest.mark.parametrize(
    ("rows", "cols"),
    [([4, 4, 0], [6, 2, 2]), ([], [1]), ([3], []), ([0, 1, 2, 4], [0]), (list(range(300, 0, -1)), [11, 5])],
    ids=["repeated", "no rows", "no columns", "a gap", "backwards and many"],
)
def test_rows_and_columns_come_in_the_order_they_were_asked_for(rows, cols):
    call = random_call(2, 3, 301, 307, mask=causal())
    rows, cols = torch.tensor(rows, dtype=torch.long), torch.tensor(cols, dtype=torch.long)
    exact = on_demand.weights(call, lse_of(call), 1, rows, cols)
    assert_close(exact, dense.probabilities(call)[:, 1][:, rows][:, :, cols], **CLOSE)


@pytest.mark.parametrize("size, n", [(7, 3), (7, 7), (3, 1), (128, 5), (0, 0)], ids=str)
def test_cells_cover_all_places_as_evenly_as_possible(size, n):
    cells = on_demand.cells(torch.arange(size), size, n)
    assert cells.tolist() == [c for c in range(n) for _ in range(c * size // n, (c + 1) * size // n)]


def test_more_keys_than_are_visible_are_filled_up():
    call = random_call(1, 2, 3, mask=causal())
    keys, weights = on_demand.top(call, lse_of(call), 0, 5)
    assert (keys >= 0).sum(-1).tolist() == [[1, 2, 3]]
    assert torch.equal(weights[keys < 0], torch.zeros(9))


def test_in_cross_attention_no_weight_is_at_a_distance():
    call = random_call(1, 2, 3, 5, across=True)
    assert on_demand.histogram(call, lse_of(call), 0).isnan().all()


def test_cells_without_a_row_that_counts_are_nan(monkeypatch):
    monkeypatch.setattr(exact_weights, "ROWS", 2)
    real = torch.tensor([[False, False, True, True, True]])
    call = random_call(1, 2, 5, real=real, mask=causal() & padding(real))
    pooled = on_demand.pooled(call, lse_of(call), 1, 2)
    assert pooled[0, 0].isnan().all()
    assert_close(pooled, dense.pooled(call, None, 1, 2), **CLOSE)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_results_are_float64_for_a_float64_model_and_else_float32(dtype):
    call = made_call("", q=torch.zeros(1, 1, 2, 3, dtype=dtype), k=torch.zeros(1, 1, 2, 3, dtype=dtype))
    weights = on_demand.weights(call, lse_of(call), 0, torch.arange(2), torch.arange(2))
    assert weights.dtype is (torch.float64 if dtype is torch.float64 else torch.float32)
    assert_close(weights, torch.full((1, 2, 2), 0.5), check_dtype=False)


def test_rows_that_do_not_count_carry_nothing():
    real = torch.tensor([[True, False, True]])
    call = made_call("", weights=torch.rand(1, 2, 3, 5).softmax(-1), real=real)
    carried = on_demand.carry(call, lse_of(call), torch.tensor([[[0.0, 5.0, 0.0], [1.0, 0.0, 2.0]]]))
    assert_close(carried.sum(-1), torch.tensor([[0.0, 3.0]]))


def test_bins_that_a_step_could_not_reach_are_0_and_nan_in_rows_that_do_not_count():
    short, long = torch.tensor([[0.25, 0.75], [torch.nan] * 2]), torch.rand(3, 5)
    first, second = on_demand.with_equal_bins([short, long])
    assert_close(first, torch.tensor([[0.25, 0.75, 0, 0, 0], [torch.nan] * 5]), equal_nan=True)
    assert torch.equal(second, long)


def test_a_query_whose_scores_are_all_hidden_does_not_count_whatever_its_weights():
    seen = causal().dense(5, 5)
    seen[..., 3, :] = False
    call = made_call("", weights=torch.full((2, 3, 5, 5), 0.2), mask=as_mask(seen))
    expected = torch.tensor([True, True, True, False, True])
    assert torch.equal(on_demand.counted(call, lse_of(call)), expected.expand(2, 3, 5))
    keep = torch.tensor([[False, True, True, True, True], [True] * 5])
    call = made_call("", weights=torch.full((2, 3, 5, 5), 0.2), mask=causal() & padding(keep))
    assert torch.equal(on_demand.counted(call, lse_of(call)), keep[:, None].expand(2, 3, 5))

"""Weights as arrays in which hidden keys are masked."""

import numpy as np
import pytest
import torch

from regard.show.figures.cells import head_cells, layer_cells, no_cells, unmasked_cells


def masses(weights, rows, cols):
    """The share of each block's weight, by loops."""
    T, S = weights.shape
    result = np.zeros((rows, cols))
    for row in range(rows):
        part = weights[row * T // rows : (row + 1) * T // rows]
        for col in range(cols):
            result[row, col] = part[:, col * S // cols : (col + 1) * S // cols].sum(1).mean()
    return result


def test_weights_are_exact_and_hidden_keys_are_masked(watched):
    head = watched(T=7, texts=3)[0, 1]
    cells = head_cells(head, 2, rows=[5, 1], cols=slice(2, 7))
    np.testing.assert_array_equal(cells.values.data, head.weights([5, 1], slice(2, 7))[2].numpy())
    np.testing.assert_array_equal(cells.values.mask, torch.arange(2, 7).numpy() > np.array([[5], [1]]))
    assert (cells.rows, cells.cols, cells.pooled) == ([5, 1], [2, 3, 4, 5, 6], False)


def test_a_long_text_is_pooled_to_shares_of_weight(watched):
    head = watched(T=521)[0, 1]
    cells = head_cells(head, 0, None, None)
    assert cells.pooled
    np.testing.assert_allclose(cells.values.data, masses(head.weights()[0].numpy(), 512, 512), atol=1e-6)
    np.testing.assert_allclose(cells.values.sum(1), np.ones(512), atol=1e-5)
    expected = masses(np.tril(np.ones((521, 521))), 512, 512) == 0
    np.testing.assert_array_equal(cells.values.mask, expected)
    assert (cells.rows[-1], cells.queries, cells.keys) == (511 * 521 // 512, 521, 521)


def test_small_maps_are_exact_where_they_fit_and_pooled_where_not(watched):
    layer = watched(T=11, heads=3, texts=2)[0]
    for head, cells in zip(layer, layer_cells(layer, 1, most=13), strict=True):
        np.testing.assert_allclose(cells.values.data, head.weights()[1].numpy(), atol=1e-6)
        np.testing.assert_array_equal(cells.values.mask, np.triu(np.ones((11, 11), dtype=bool), 1))
    for head, cells in zip(layer, layer_cells(layer, 1, most=5), strict=True):
        np.testing.assert_allclose(cells.values.data, masses(head.weights()[1].numpy(), 5, 5), atol=1e-6)


def test_more_chosen_rows_than_can_be_drawn_are_refused(watched):
    head = watched(T=521)[0, 1]
    with pytest.raises(
        ValueError, match=r"at most 512 rows and columns are drawn one by one, and 1 rows and 521 columns"
    ):
        head_cells(head, 0, 3, None)


def test_no_rows_are_refused(watched):
    with pytest.raises(ValueError, match="a map needs a query and a key at least; 0 queries and 5 keys are chosen"):
        head_cells(watched(T=5)[0, 1], 0, [], None)


def test_no_cells_are_visible_until_one_is_set():
    grid = no_cells(2, 3)
    assert unmasked_cells(grid) == []
    grid[1, 2] = 0.5
    assert unmasked_cells(grid) == [(1, 2)]

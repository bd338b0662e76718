"""Which cells of a record's maps are visible."""

import pytest
import torch

import regard
from regard.heads.report.visible_keys import hides_future, visible_cells, visible_keys


def record(mask=None, window=None, T=7):
    torch.manual_seed(3)
    layer = regard.MultiHeadAttention(6, 6, None, dropout=0.0, num_heads=2, window=window)
    with torch.no_grad(), regard.watch(layer) as seen:
        layer(torch.randn(2, T, 6), mask=mask)
    return seen[0].record


def test_visible_keys_are_those_of_the_mask():
    allowed = (regard.causal() & regard.window(3)).dense(7, 7, torch.device("cpu")).expand(2, 2, 7, 7)
    assert torch.equal(visible_keys(record(window=3), torch.arange(7)), allowed)
    assert torch.equal(visible_keys(record(window=3), torch.tensor([5, 2])), allowed[:, :, [5, 2]])


def test_a_visible_key_is_one_that_may_have_weight():
    one = record(mask=torch.tensor([7, 4]))
    weights = one.weights(1, torch.arange(7), torch.arange(7))
    assert torch.equal(visible_keys(one, torch.arange(7))[:, 1] & (weights > 0), weights > 0)


@pytest.mark.parametrize("n", [1, 3, 7, 11])
def test_a_cell_is_visible_where_a_key_in_it_is(n):
    one = record(window=2)
    keys, size = visible_keys(one, torch.arange(7)), min(n, 7)
    cells = visible_cells(one, n)
    edges = [i * 7 // size for i in range(size + 1)]
    for i in range(size):
        for j in range(size):
            block = keys[:, :, edges[i] : edges[i + 1], edges[j] : edges[j + 1]]
            assert torch.equal(cells[:, :, i, j], block.flatten(2).any(-1))


def test_one_text_of_a_batch_is_its_part_of_all():
    one = record(mask=torch.tensor([7, 4]))
    assert torch.equal(visible_keys(one, torch.arange(7), text=1), visible_keys(one, torch.arange(7))[1:])
    rows, cols = torch.tensor([5, 2]), torch.arange(7)
    assert torch.equal(one.weights(1, rows, cols, text=1), one.weights(1, rows, cols)[1:])


def test_a_causal_mask_hides_the_future_and_a_dense_one_is_not_looked_at():
    assert hides_future(record())
    assert hides_future(record(mask=torch.tensor([7, 4]), window=3))
    layer = regard.MultiHeadAttention(6, 6, None, dropout=0.0, num_heads=2, causal=False)
    with torch.no_grad(), regard.watch(layer) as seen:
        layer(torch.randn(2, 7, 6), mask=torch.ones(7, 7, dtype=torch.bool).tril())
    assert not seen[0].hides_future

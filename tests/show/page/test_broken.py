"""Rows of weights that are no numbers are told apart from rows that the mask hides everything from."""

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

import regard
from regard.show.page.broken import rows_without_numbers

B, H, T, D = 2, 3, 11, 5


class Attention(nn.Module):
    def forward(self, q, k, mask):
        return scaled_dot_product_attention(q, k, k, attn_mask=mask)


def watched(value=None, rows=(), mask=None):
    torch.manual_seed(3)
    q, k = torch.randn(B, H, T, D), torch.randn(B, H, T, D)
    for row in rows:
        q[1, 2, row] = value
    mask = torch.ones(T, T, dtype=torch.bool).tril() if mask is None else mask
    with torch.no_grad(), regard.watch(model := Attention(), keep=True) as seen:
        model(q, k, mask)
    return seen[0]


def test_the_rows_of_a_head_with_nan_are_found_as_runs():
    layer = watched(torch.nan, rows=(2, 3, 4, 7))
    assert rows_without_numbers(layer, 1) == {"2": {"rows": [[2, 4], [7, 7]], "kind": "NaN"}}
    assert rows_without_numbers(layer, 0) == {}


@pytest.mark.parametrize("sign", [1, -1])
def test_an_infinite_score_is_named_infinity(sign):
    found = rows_without_numbers(watched(sign * torch.inf, rows=(5,)), 1)
    assert found == {"2": {"rows": [[5, 5]], "kind": "infinity"}}


def test_a_row_that_the_mask_hides_everything_from_is_no_broken_one():
    mask = torch.ones(T, T, dtype=torch.bool).tril()
    mask[4] = False
    assert rows_without_numbers(watched(mask=mask), 0) == {}

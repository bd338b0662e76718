"""Rows that are chosen and put back are what they were; all others are new."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import regard

B, T, E = 2, 7, 5


def sorted_and_unsorted(x):
    order = torch.tensor([3, 1, 0, 6, 5, 2, 4])
    return F.layer_norm(x[:, order], (E,))[:, order.argsort()]


def by_experts(x, shift=0):
    """Each token twice, for two experts, as a mixture of attention heads has them."""
    flat, expert = x.reshape(-1, E), torch.arange(2 * B * T) % 2
    order = expert.argsort(stable=True)
    chosen = [torch.tanh(one) for one in flat[order // 2].split(B * T)]
    out = torch.zeros(2 * B * T, E).index_add(0, (order + shift) % len(order), torch.cat(chosen))
    return out.view(B, T, 2, E)[:, :, 1]


def in_parts(x):
    return torch.cat([one.tanh() for one in x.split(3, 1)], 1)


CASES = {
    "sorted and unsorted": (sorted_and_unsorted, False),
    "sorted twice": (lambda x: x[:, (order := torch.tensor([1, 2, 0, 4, 5, 6, 3]))][:, order], True),
    "by experts": (by_experts, False),
    "by experts, one token too late": (lambda x: by_experts(x, 2), True),
    "in parts": (in_parts, False),
    "in parts, in another order": (lambda x: torch.cat([one.tanh() for one in (x[:, 3:], x[:, :3])], 1), True),
    "index_select": (lambda x: x.index_select(1, torch.arange(T)), False),
    "index_select, reversed": (lambda x: x.index_select(1, torch.arange(T).flip(0)), True),
    "some written over": (lambda x: torch.zeros_like(x).index_copy(1, torch.arange(T).roll(1), x), True),
}


class Attends(nn.Module):
    def __init__(self, keys):
        super().__init__()
        self.keys = keys

    def forward(self, x):
        k = self.keys(x).unsqueeze(1)
        return F.scaled_dot_product_attention(x.unsqueeze(1), k, k)


@pytest.mark.parametrize("name", CASES)
def test_rows_that_are_put_back_where_they_were_are_the_same(name):
    keys, is_marked = CASES[name]
    with regard.watch(model := Attends(keys)) as seen:
        model(torch.randn(B, T, E))
    assert any(mark.startswith("positions assumed") for mark in seen[0].marks) is is_marked

"""What the interceptor knows of the modules that run: recomputations, and where their heads were before."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import regard
from regard.heads.intercept.interceptor import in_backward, is_recomputed


def test_a_recomputation_is_recognised():
    said = []

    def run(x):
        said.append((is_recomputed(), in_backward()))
        return 2 * x.sin()

    checkpoint(run, torch.randn(3, requires_grad=True), use_reentrant=False).sum().backward()
    run(torch.randn(3))
    assert said[0] == (True, False)
    assert said[1][1]
    assert said[-1] == (False, False)


class Copied(nn.Module):
    """Attention of three heads, whose queries are copied after they were cut; `order`: the axes of its scores."""

    def __init__(self, order, declared):
        super().__init__()
        self.q, self.k, self.v, self.order = nn.Linear(15, 15), nn.Linear(15, 15), nn.Linear(15, 15), order
        if declared:
            self.num_heads = 3

    def forward(self, x):
        q, k, v = (torch.cat(list(one(x).unflatten(-1, (3, 5)).split(1, -1)), -1) for one in (self.q, self.k, self.v))
        weights = torch.einsum(f"bthd,bshd->{self.order}", q, k).softmax(-1)
        return torch.einsum(f"{self.order},bshd->bthd", weights, v)


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("order", ["bhts", "bths"])
@pytest.mark.parametrize("shape", [(2, 3), (3, 5), (3, 3)])
@torch.no_grad()
def test_as_many_queries_or_texts_as_heads_leave_no_doubt_once_the_module_ran_with_others(shape, order, declared):
    model = Copied(order, declared)
    x = torch.randn(*shape, 15)
    q, k = (one(x).unflatten(-1, (3, 5)).transpose(1, 2) for one in (model.q, model.k))
    for inputs in (torch.randn(2, 7, 15), x):
        with regard.watch(model) as seen:
            model(inputs)
    torch.testing.assert_close(seen[0].weights(), (q @ k.mT).softmax(-1))
    assert seen[0].marks == ()

"""regard's own attend(), watched and cut."""

import pytest
import torch
from torch import nn

import regard
from heads.models import assert_weights, calls, watched
from helpers import random_qkv


class Attend(nn.Module):
    """attend(), or the formula in steps."""

    def __init__(self, function=regard.attend):
        super().__init__()
        self.function = function

    def forward(self, q, k, v):
        return self.function(q, k, v, mask=regard.causal(), scale=0.3)


@pytest.mark.parametrize("function", [regard.attend, regard.attend_in_steps])
def test_one_call_is_reported_once_with_its_queries_keys_and_mask(function):
    q, k, v = random_qkv(B=2, H=3, T=5, S=7, D=4)
    _, reports = watched(Attend(function), q, k, v)
    (call,) = calls(reports)
    assert not call.attention.q.requires_grad
    assert_weights(call, regard.attend_in_steps(q, k, v, mask=regard.causal(), scale=0.3)[1])


def test_a_head_and_an_edge_that_are_cut_change_the_context_and_the_weights():
    q, k, v = random_qkv(B=2, H=3, T=5, S=5, D=4)
    model = Attend(regard.attend_in_steps)
    with regard.cut(model, (0, 1)):
        context, _ = model(q, k, v)
    assert not context[:, 1].any()
    assert context[:, [0, 2]].any()
    with regard.cut(model, edges=[(3, 1)]):
        _, weights = model(q, k, v)
    assert not weights[:, :, 3, 1].any()
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))

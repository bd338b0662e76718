"""Attention sinks after FlexAttention, as GPT-OSS has them: the weights are those that multiply the values."""

import pytest
import torch
from torch import nn
from torch.nn.attention.flex_attention import AuxRequest, flex_attention

import regard
from heads.models import assert_weights, calls, watched

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")
B, H, T, D = 2, 3, 7, 16


class WithSinks(nn.Module):
    """FlexAttention whose output is scaled afterwards, or used in another way."""

    def __init__(self, use):
        super().__init__()
        self.sinks, self.use = nn.Parameter(torch.tensor([2.0, 0.5, 3.0])), use

    def forward(self, q):
        out, aux = flex_attention(q, q, q, return_aux=AuxRequest(lse=True))
        return self.use(out, aux.lse, self.sinks)


def renormalised(out, lse, sinks):
    sinks = sinks.view(1, -1, 1, 1).expand(*lse.shape, 1)
    both = torch.logsumexp(torch.cat([lse.unsqueeze(-1), sinks], -1), -1, keepdim=True)
    return (out * torch.exp(lse.unsqueeze(-1) - both)).transpose(1, 2)


def test_weights_are_those_with_the_sinks():
    q = torch.randn(B, H, T, D)
    model = WithSinks(renormalised)
    _, reports = watched(model, q)
    (call,) = calls(reports)
    scores = torch.cat([q @ q.mT / 4, model.sinks.view(1, -1, 1, 1).expand(B, H, T, 1)], -1)
    expected = scores.softmax(-1)[..., :-1].detach()
    assert_weights(call, expected)
    low, high = expected.sum(-1).min(), expected.sum(-1).max()
    assert call.origin.basis.marks == (
        f"weights: rows sum to {low:.2f} – {high:.2f}; the rest is on a key that has no value",
    )


def test_an_lse_that_is_only_read_changes_nothing():
    q = torch.randn(B, H, T, D)
    (call,) = calls(watched(WithSinks(lambda out, lse, sinks: (out, lse.to(out.dtype).mean())), q)[1])
    assert_weights(call, (q @ q.mT / 4).softmax(-1))
    assert call.origin.basis.marks == ()


def test_an_output_that_is_combined_with_the_lse_in_another_way_is_refused():
    model = nn.ModuleDict({"attention": WithSinks(lambda out, lse, sinks: torch.addcmul(out, out, lse.unsqueeze(-1)))})
    model.forward = lambda q: model["attention"](q)
    with (
        pytest.warns(UserWarning, match="the attention in attention is not reported: its output is combined with its"),
        pytest.raises(ValueError, match="its output is combined with its log-sum-exp by addcmul"),
        regard.watch(model),
    ):
        model(torch.randn(B, H, T, D))


def test_a_share_that_meets_the_output_in_another_layout_is_refused():
    model = WithSinks(lambda out, lse, sinks: out.transpose(1, 2) * lse.sigmoid().transpose(1, 2)[..., None])
    with (
        pytest.warns(UserWarning, match="is not reported: its output is combined with its log-sum-exp by mul"),
        pytest.raises(ValueError, match="made no attention that can be seen"),
        regard.watch(model),
    ):
        model(torch.randn(B, H, T, D))

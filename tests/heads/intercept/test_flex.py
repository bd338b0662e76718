"""FlexAttention, eager and compiled, with a mask_mod, with a score_mod, and with sinks as GPT-OSS has them."""

import sys

import pytest
import torch
from torch import nn
from torch.nn.attention.flex_attention import AuxRequest, flex_attention

import regard
from heads import models
from heads.models import assert_weights, calls, ids, watched

pytestmark = [
    pytest.mark.usefixtures("unchanged"),
    pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning"),
]
B, H, T, D = 2, 3, 7, 16


class Flex(nn.Module):
    def __init__(self, function, **how):
        super().__init__()
        self.function, self.how = function, how

    def forward(self, q, k):
        return self.function(q, k, k, **self.how)


@pytest.mark.parametrize("compiled", [False, True])
def test_flex_attention_is_reported_with_its_mask_mod(compiled):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    document = torch.tensor([[0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 0, 1, 1]])

    def rule(b, h, i, j):
        return (document[b, i] == document[b, j]) & (i >= j)

    q, k = torch.randn(2, 6, 7, 16), torch.randn(2, 3, 7, 16)
    block_mask = create_block_mask(rule, 2, None, 7, 7, device="cpu")
    function = torch.compile(flex_attention, backend="eager") if compiled else flex_attention
    model = Flex(function, block_mask=block_mask, enable_gqa=True, scale=0.2)
    unwatched = flex_attention(q, k, k, block_mask=block_mask, enable_gqa=True, scale=0.2)
    out, reports = watched(model, q, k)
    torch.testing.assert_close(out, unwatched)
    allowed = (document[:, :, None] == document[:, None]) & torch.ones(7, 7).tril().bool()
    scores = 0.2 * q @ k.repeat_interleave(2, 1).mT
    (call,) = calls(reports)
    assert_weights(call, scores.masked_fill(~allowed[:, None], -torch.inf).softmax(-1))
    assert call.attention.mask.kind == "rule"


def test_flex_attention_with_a_score_mod_is_reported_as_weights(monkeypatch):
    from torch.nn.attention.flex_attention import flex_attention

    slopes = torch.tensor([0.5, 0.25, 0.125])
    q = torch.randn(2, 3, 7, 16)
    model = Flex(
        flex_attention, score_mod=lambda score, b, h, i, j: 3 * torch.tanh(score / 3) - slopes[h] * (i - j).abs()
    )
    out, reports = watched(model, q, q)
    distance = (torch.arange(7)[:, None] - torch.arange(7)).abs()
    expected = (3 * torch.tanh(q @ q.mT / 4 / 3) - slopes[:, None, None] * distance).softmax(-1)
    assert_weights(reports[0][2], expected)
    torch.testing.assert_close(out, expected @ q)
    monkeypatch.setattr(sys.modules["regard.heads.intercept.flex"], "LIMIT", 293)
    with pytest.raises(
        ValueError, match="the model itself: a FlexAttention with a score_mod and 2 × 3 × 7 × 7 weights"
    ):
        watched(model, q, q)


@pytest.mark.filterwarnings("ignore:_compile flag on create_block_mask:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")
@torch.no_grad()
def test_flex_attention_in_transformers():
    model, x = models.llama(), ids()
    mask = torch.tensor([[1] * 7, [1] * 4 + [0] * 3])
    expected = models.eager(model, input_ids=x, attention_mask=mask).attentions
    model.set_attn_implementation("flex_attention")
    _, reports = watched(model, input_ids=x, attention_mask=mask)
    for call, weights in zip(calls(reports), expected, strict=True):
        assert_weights(call, weights)


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

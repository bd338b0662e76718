"""FlexAttention, eager and compiled, with a mask_mod and with a score_mod."""

import sys

import pytest
import torch
from torch import nn

from heads import models
from heads.models import assert_weights, calls, ids, watched

pytestmark = pytest.mark.usefixtures("unchanged")


class Flex(nn.Module):
    def __init__(self, function, **how):
        super().__init__()
        self.function, self.how = function, how

    def forward(self, q, k):
        return self.function(q, k, k, **self.how)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")
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


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")
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


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")
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

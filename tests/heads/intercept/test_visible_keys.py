"""Which keys a query may see, in models that compute their weights themselves: by scores, and not by weights above 0.

Scores differ by hundreds, so that most weights underflow to 0, with and without a mask.
"""

import pytest
import torch
from torch import nn

import regard
from heads.models import calls, gpt2, ids, watched
from regard.attention.masks import EVERYTHING, Dense, causal
from regard.heads.calls.basis import How
from regard.heads.calls.visibility import visible_tile

B, H, T, D = 2, 3, 11, 5
CAUSAL = causal().dense(T)[0, 0]
ODD = (torch.rand(B, 1, T, T, generator=torch.Generator().manual_seed(0)) < 0.5) | torch.eye(T, dtype=torch.bool)
MASKS = {"causal": CAUSAL, "odd": ODD, "of each head": ODD | CAUSAL & (torch.arange(H) == 1)[:, None, None]}


def before(value):
    return lambda scores, mask: scores.masked_fill(~mask, value).softmax(-1)


def added(value):
    return lambda scores, mask: (scores + torch.where(mask, 0.0, value)).softmax(-1)


def by_index(weights, mask):
    weights[~mask.expand_as(weights)] = 0
    return weights


HOW = {
    "-inf": before(-torch.inf),
    "lowest": before(torch.finfo(torch.float32).min),
    "-1e9 added": added(-1e9),
    "-1e4": before(-1e4),
    "-1e4 added": added(-1e4),
    "filled after": lambda scores, mask: scores.softmax(-1).masked_fill(~mask, 0),
    "filled in place": lambda scores, mask: scores.softmax(-1).masked_fill_(~mask, 0),
    "multiplied": lambda scores, mask: scores.softmax(-1) * mask,
    "multiplied from the left": lambda scores, mask: mask.float() * scores.softmax(-1),
    "where": lambda scores, mask: torch.where(mask, scores.softmax(-1), 0.0),
    "by an index": lambda scores, mask: by_index(scores.softmax(-1), mask),
    "in a view": lambda scores, mask: scores.softmax(-1).flatten(0, 1) * mask.expand(B, H, T, T).flatten(0, 1),
    "after dropout": lambda scores, mask: nn.functional.dropout(scores.softmax(-1), 0.5, True).masked_fill(~mask, 0),
    "and before": lambda scores, mask: before(-torch.inf)(scores, mask | CAUSAL) * mask,
}


class ByHand(nn.Module):
    """Attention with a mask, by one of HOW."""

    def __init__(self, weigh, mask):
        super().__init__()
        self.num_heads, self.weigh, self.mask = H, weigh, mask

    def forward(self, x):
        scores = 150 * x @ x.mT
        return self.weigh(scores, self.mask).reshape(B, H, T, T) @ x


def visible_keys(call):
    return visible_tile(call, torch.arange(T)).expand(B, H, T, T)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", MASKS)
def test_a_weight_that_is_0_by_rounding_is_not_hidden(how, name):
    mask = MASKS[name]
    (call,) = calls(watched(ByHand(HOW[how], mask), torch.randn(B, H, T, D))[1])
    assert torch.equal(visible_keys(call), mask.expand(B, H, T, T))
    zeros = call.attention.weights == 0
    assert (zeros & mask).any()
    assert call.origin.basis.weights.how is How.CALL
    if name == "causal":
        assert call.attention.mask.parts().rest is None  # no T × T mask is kept


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_without_a_mask_all_keys_are_visible_whatever_their_weights(dtype):
    model = ByHand(lambda scores, mask: scores.softmax(-1), None)
    with regard.watch(model, collect="received_mean") as seen:
        model(torch.randn(B, H, T, D).to(dtype))
    assert (seen[0].weights() == 0).any()
    assert seen[0].record.steps[0].call.attention.mask is EVERYTHING
    assert (seen[0].record.visible()[0] == T).all()
    torch.testing.assert_close(seen[0].received_mean, seen[0].received / T)


def test_small_numbers_that_are_added_to_all_weights_make_all_keys_visible():
    model = ByHand(lambda scores, mask: before(-torch.inf)(scores, mask) + 1e-3, CAUSAL)
    (call,) = calls(watched(model, torch.randn(B, H, T, D))[1])
    assert visible_keys(call).all()


def test_a_mask_that_is_written_by_a_function_that_is_not_followed_is_assumed():
    def weigh(scores, mask):
        weights = scores.softmax(-1)
        weights.view(-1)[~mask.expand_as(weights).reshape(-1)] = 0
        return weights

    (call,) = calls(watched(ByHand(weigh, ODD), torch.randn(B, H, T, D))[1])
    assert str(call.origin.basis.weights) == "assumed: keys with a weight of 0 are hidden"
    assert torch.equal(visible_keys(call), call.attention.weights > 0)


def in_data(weights):
    weights.data[..., 2] = 0


def in_a_view(weights):
    weights.view(-1, T)[:, 2].zero_()


def in_numpy(weights):
    weights.numpy()[..., 2] = 0


@pytest.mark.parametrize("write", [in_data, in_a_view, in_numpy])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_key_that_is_hidden_in_memory_that_counts_no_versions_is_assumed(write, mode):
    def weigh(scores, mask):
        weights = (scores / 1000).softmax(-1)
        write(weights)
        return weights

    with mode():
        (call,) = calls(watched(ByHand(weigh, None), torch.randn(B, H, T, D))[1])
    assert str(call.origin.basis.weights) == "assumed: keys with a weight of 0 are hidden"
    assert torch.equal(visible_keys(call), (torch.arange(T) != 2).expand(B, H, T, T))


def test_layers_keep_one_copy_of_a_mask_that_is_no_rule():
    model = gpt2()
    model.set_attn_implementation("eager")
    mask = torch.where(ODD.expand(B, 1, T, T), 0.0, torch.finfo(torch.float32).min)
    with torch.no_grad(), regard.watch(model) as seen:
        model(ids(B, T), attention_mask=mask)
    masks = [layer.record.steps[0].call.attention.mask for layer in seen]
    assert len(masks) > 1
    assert all(isinstance(mask, Dense) and mask.seen.shape == (B, 1, T, T) for mask in masks)
    assert len({mask.seen.data_ptr() for mask in masks}) == 1

"""Multi-head attention as learners write it: correct in many ways, and wrong in one place each.

Every function takes the layer (its weights) and x; H heads of D. `CORRECT` and `WRONG` list them.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from regard import step
from regard.ladder import MultiHeadAttention

B, T, D_IN, H, D = 2, 7, 11, 3, 5
E = H * D


class Homework(nn.Module):
    """A layer with the weights of the ladder's, computed by a function."""

    def __init__(self, function, weights, p=0.0):
        super().__init__()
        self.W_query, self.W_key, self.W_value = (nn.Linear(D_IN, E, bias=False) for _ in range(3))
        self.out_proj, self.dropout, self.function = nn.Linear(E, E), nn.Dropout(p), function
        self.register_buffer("mask", torch.ones(13, 13).triu(1), persistent=False)
        self.load_state_dict(weights)

    def forward(self, x):
        return self.function(self, x)


def reference():
    torch.manual_seed(5)
    return MultiHeadAttention(D_IN, E, 13, 0.0, H).eval()


def qkv(layer, x):
    return (W(x).view(B, T, H, D).transpose(1, 2) for W in (layer.W_query, layer.W_key, layer.W_value))


def future(diagonal=1):
    return torch.triu(torch.ones(T, T), diagonal=diagonal).bool()


def join(heads):
    return heads.transpose(1, 2).contiguous().view(B, T, E)


# Correct.


def plain(layer, x):
    q, k, v = qkv(layer, x)
    scores = q @ k.transpose(-2, -1)
    scores = scores.masked_fill(layer.mask.bool()[:T, :T], -torch.inf)
    weights = torch.softmax(scores / math.sqrt(D), dim=-1)
    return layer.out_proj(join(layer.dropout(weights) @ v))


def scale_before_mask(layer, x):
    q, k, v = qkv(layer, x)
    weights = (q @ k.mT / D**0.5).masked_fill(future(), -torch.inf).softmax(-1)
    return layer.out_proj(join(weights @ v))


def scaled_queries(layer, x):
    q, k, v = qkv(layer, x)
    weights = F.softmax(((q / D**0.5) @ k.mT).masked_fill(future(), -torch.inf), dim=-1)
    return layer.out_proj(join(weights @ v))


def finite_mask(layer, x):
    q, k, v = qkv(layer, x)
    scores = (q @ k.mT) * D**-0.5
    scores = scores.masked_fill(torch.tril(torch.ones(T, T)) == 0, -1e9)
    return layer.out_proj(join(scores.softmax(-1) @ v))


def added_mask(layer, x):
    q, k, v = qkv(layer, x)
    mask = torch.zeros(T, T).masked_fill(future(), -torch.inf)
    return layer.out_proj(join((q @ k.mT / D**0.5 + mask).softmax(-1) @ v))


def assigned_mask(layer, x):
    q, k, v = qkv(layer, x)
    scores = q @ k.mT
    scores[..., future()] = -torch.inf
    return layer.out_proj(join((scores / D**0.5).softmax(-1) @ v))


def in_place_mask(layer, x):
    q, k, v = qkv(layer, x)
    scores = q @ k.mT
    scores.masked_fill_(future(), -torch.inf)
    return layer.out_proj(join((scores / D**0.5).softmax(-1) @ v))


def batched_products(layer, x):
    q, k, v = (t.reshape(B * H, T, D) for t in qkv(layer, x))
    scores = torch.bmm(q, k.transpose(1, 2)) / D**0.5
    weights = scores.masked_fill(future(), -torch.inf).softmax(-1)
    return layer.out_proj(join(torch.bmm(weights, v).view(B, H, T, D)))


def einsum(layer, x):
    q, k, v = (W(x).view(B, T, H, D) for W in (layer.W_query, layer.W_key, layer.W_value))
    scores = torch.einsum("bthd,bshd->bhts", q, k) / D**0.5
    weights = torch.where(future(), -torch.inf, scores).softmax(-1)
    return layer.out_proj(torch.einsum("bhts,bshd->bthd", weights, v).reshape(B, T, E))


def one_product_for_qkv(layer, x):
    weight = torch.cat([layer.W_query.weight, layer.W_key.weight, layer.W_value.weight])
    q, k, v = F.linear(x, weight).view(B, T, 3, H, D).permute(2, 0, 3, 1, 4)
    weights = (q @ k.mT).masked_fill(future(), -torch.inf).div(D**0.5).softmax(-1)
    return layer.out_proj(join(weights @ v))


def head_by_head(layer, x):
    q, k, v = layer.W_query(x), layer.W_key(x), layer.W_value(x)
    heads = []
    for h in range(H):
        part = slice(h * D, (h + 1) * D)
        scores = q[..., part] @ k[..., part].mT / D**0.5
        heads.append(scores.masked_fill(future(), -torch.inf).softmax(-1) @ v[..., part])
    return layer.out_proj(torch.cat(heads, dim=-1))


def keys_first(layer, x):
    """Scores and weights transposed, and back before the values are mixed."""
    q, k, v = qkv(layer, x)
    weights = (k @ q.mT / D**0.5).masked_fill(future().mT, -torch.inf).softmax(-2)
    return layer.out_proj(join(weights.mT @ v))


def fused(layer, x):
    q, k, v = qkv(layer, x)
    return layer.out_proj(join(F.scaled_dot_product_attention(q, k, v, is_causal=True)))


def own_names(layer, x):
    q, k, v = (step(name, t) for name, t in zip(("Q", "K", "V"), qkv(layer, x), strict=True))
    energy = step("energy", q @ k.mT / D**0.5)
    attention = step("attention", energy.masked_fill(future(), -torch.inf).softmax(-1))
    return step("result", layer.out_proj(step("merged", join(attention @ v))))


def usual_names_for_other_steps(layer, x):
    """`scores` is scaled already, `queries` are split, and nothing else has a name."""
    q, k, v = qkv(layer, x)
    scores = step("scores", step("queries", q) @ step("keys", k).mT / D**0.5)
    weights = step("weights", scores.masked_fill(future(), -torch.inf).softmax(-1))
    return layer.out_proj(step("context", join(weights @ v)))


def with_its_weights(layer, x):
    q, k, v = qkv(layer, x)
    weights = (q @ k.mT / D**0.5).masked_fill(future(), -torch.inf).softmax(-1)
    return layer.out_proj(join(weights @ v)), weights


CORRECT = [
    *(plain, scale_before_mask, scaled_queries, finite_mask, added_mask, assigned_mask, in_place_mask),
    *(batched_products, einsum, one_product_for_qkv, head_by_head, keys_first, fused, own_names),
    *(usual_names_for_other_steps, with_its_weights),
]


# Wrong, each in one place.


def attend(q, k, v, scale=D**-0.5, hidden=None):
    hidden = future() if hidden is None else hidden
    return (q @ k.mT * scale).masked_fill(hidden, -torch.inf).softmax(-1) @ v


def scaled_by_the_whole_width(layer, x):
    q, k, v = qkv(layer, x)
    return layer.out_proj(join(attend(q, k, v, E**-0.5)))


def scaled_by_width_without_root(layer, x):
    q, k, v = qkv(layer, x)
    scores = (q @ k.mT).masked_fill(future(), -torch.inf)
    return layer.out_proj(join((scores / D).softmax(-1) @ v))


def not_scaled(layer, x):
    q, k, v = qkv(layer, x)
    return layer.out_proj(join((q @ k.mT).masked_fill(future(), -torch.inf).softmax(-1) @ v))


def no_mask(layer, x):
    q, k, v = qkv(layer, x)
    return layer.out_proj(join((q @ k.mT / D**0.5).softmax(-1) @ v))


def mask_hides_the_token_itself(layer, x):
    q, k, v = qkv(layer, x)
    hidden = future(0)
    hidden[0, 0] = False
    return layer.out_proj(join(attend(q, k, v, hidden=hidden)))


def mask_shows_the_next_token(layer, x):
    q, k, v = qkv(layer, x)
    return layer.out_proj(join(attend(q, k, v, hidden=future(2))))


def mask_hides_the_past(layer, x):
    q, k, v = qkv(layer, x)
    return layer.out_proj(join(attend(q, k, v, hidden=future().mT)))


def masked_with_zero(layer, x):
    q, k, v = qkv(layer, x)
    return layer.out_proj(join((q @ k.mT / D**0.5).masked_fill(future(), 0).softmax(-1) @ v))


def wrong_mask_before_the_scale(layer, x):
    q, k, v = qkv(layer, x)
    return layer.out_proj(join(((q @ k.mT).masked_fill(future(2), -torch.inf) / D**0.5).softmax(-1) @ v))


def fused_without_mask(layer, x):
    return layer.out_proj(join(F.scaled_dot_product_attention(*qkv(layer, x))))


def fused_without_scale(layer, x):
    return layer.out_proj(join(F.scaled_dot_product_attention(*qkv(layer, x), is_causal=True, scale=1.0)))


def fused_with_another_mask(layer, x):
    mask = ~future(2)
    return layer.out_proj(join(F.scaled_dot_product_attention(*qkv(layer, x), mask, scale=D**-0.5)))


def mask_after_softmax(layer, x):
    q, k, v = qkv(layer, x)
    weights = (q @ k.mT / D**0.5).softmax(-1).masked_fill(future(), 0)
    return layer.out_proj(join(weights @ v))


def softmax_over_queries(layer, x):
    q, k, v = qkv(layer, x)
    weights = (q @ k.mT / D**0.5).masked_fill(future(), -torch.inf).softmax(-2).nan_to_num()
    return layer.out_proj(join(weights @ v))


def joined_without_transpose(layer, x):
    q, k, v = qkv(layer, x)
    return layer.out_proj(attend(q, k, v).reshape(B, T, E))


def split_without_transpose(layer, x):
    q, k, v = (W(x).view(B, H, T, D) for W in (layer.W_query, layer.W_key, layer.W_value))
    return layer.out_proj(join(attend(q, k, v)))


def heads_interleaved(layer, x):
    q, k, v = (W(x).view(B, T, D, H).permute(0, 3, 1, 2) for W in (layer.W_query, layer.W_key, layer.W_value))
    return layer.out_proj(join(attend(q, k, v)))


def no_output_projection(layer, x):
    q, k, v = qkv(layer, x)
    return join(attend(q, k, v))


def keys_as_values(layer, x):
    q, k, _ = qkv(layer, x)
    return layer.out_proj(join(attend(q, k, k)))


def queries_of_the_keys_weight(layer, x):
    k, v = (W(x).view(B, T, H, D).transpose(1, 2) for W in (layer.W_key, layer.W_value))
    return layer.out_proj(join(attend(k, k, v)))


def keys_against_queries(layer, x):
    q, k, v = qkv(layer, x)
    return layer.out_proj(join(attend(k, q, v)))


def dropout_left_on(layer, x):
    q, k, v = qkv(layer, x)
    weights = (q @ k.mT / D**0.5).masked_fill(future(), -torch.inf).softmax(-1)
    return layer.out_proj(join(F.dropout(weights, 0.5, training=True) @ v))


def residual_added(layer, x):
    return plain(layer, x) + layer.W_value(x)


def projected_twice(layer, x):
    return layer.out_proj(plain(layer, x))


def named_with_a_wrong_scale(layer, x):
    q, k, v = qkv(layer, x)
    energy = step("energy", q @ k.mT / E**0.5)
    attention = step("attention", energy.masked_fill(future(), -torch.inf).softmax(-1))
    return step("result", layer.out_proj(step("merged", join(attention @ v))))


def named_with_a_mask_after_softmax(layer, x):
    q, k, v = qkv(layer, x)
    weights = step("weights", (step("scores", q @ k.mT) / D**0.5).softmax(-1))
    masked = step("hide the future", weights.masked_fill(future(), 0))
    return step("out", layer.out_proj(join(step("context", masked @ v))))


def named_all_in_one(layer, x):
    q, k, v = qkv(layer, x)
    logits = step("logits", (q @ k.mT / E**0.5).masked_fill(future(), -torch.inf))
    return step("y", layer.out_proj(join(step("mix", step("a", logits.softmax(-1)) @ v))))


# The mistake, and the step at which it must be found: its name, and its meaning.
WRONG = [
    (scaled_by_the_whole_width, "scaled", "scaled"),
    (scaled_by_width_without_root, "scaled", "scaled"),
    (not_scaled, "scaled", "scaled"),
    (no_mask, "mask", "mask"),
    (mask_hides_the_token_itself, "mask", "mask"),
    (mask_shows_the_next_token, "mask", "mask"),
    (mask_hides_the_past, "mask", "mask"),
    (masked_with_zero, "mask", "mask"),
    (wrong_mask_before_the_scale, "mask", "mask"),
    (fused_without_mask, "scaled_dot_product_attention", "context"),
    (fused_without_scale, "scaled_dot_product_attention", "context"),
    (fused_with_another_mask, "scaled_dot_product_attention", "context"),
    (mask_after_softmax, "mask", "mask"),
    (softmax_over_queries, "weights", "weights"),
    (joined_without_transpose, "reshape", "concat"),
    (split_without_transpose, "view", "split"),
    (heads_interleaved, "view", "split"),
    (no_output_projection, "out", "out"),
    (keys_as_values, "context", "context"),
    (queries_of_the_keys_weight, "queries", "queries"),
    (keys_against_queries, "scores", "scores"),
    (dropout_left_on, "dropout", "dropout"),
    (residual_added, "add", "out"),
    (projected_twice, "out_proj 2", "out"),
    (named_with_a_wrong_scale, "energy", "scaled"),
    (named_with_a_mask_after_softmax, "hide the future", "mask"),
    (named_all_in_one, "logits", "mask"),
]

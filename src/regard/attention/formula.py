"""The formula of attention, one line per step: the page to read. attend.py computes the same, fast.

weights = softmax(q · kᵀ · scale, hidden keys at −∞); context = weights · v.
Tests prove the two equal. Nothing else in the project computes attention, except the four rungs of the ladder.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.attention.call_arguments import checked_call, scaling_in_words
from regard.attention.hidden_keys import clear_hidden, mix_visible, softmax_over_visible
from regard.attention.masks import EVERYTHING, Mask
from regard.attention.observers import Route, observed
from regard.attention.positions import alibi_bias
from regard.attention.precision import in_float32, without_autocast
from regard.steps import step


def attend_in_steps(
    q: Float[Tensor, "B H T D"],
    k: Float[Tensor, "B Hkv S D"],
    v: Float[Tensor, "B Hkv S Dv"],
    *,
    mask: Mask | Tensor | Sequence[int] | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    alibi: Float[Tensor, "H"] | None = None,
    bias: Float[Tensor, "#B #H #T #S"] | None = None,
) -> tuple[Float[Tensor, "B H T Dv"], Float[Tensor, "B H T S"]]:
    """Mix values by how well each query matches each key; returns the context and the weights (before dropout).

    >>> import regard
    >>> q = k = v = torch.eye(2).view(1, 1, 2, 2)
    >>> context, weights = attend_in_steps(q, k, v, mask=regard.causal())
    >>> weights[0, 0]
    tensor([[1.0000, 0.0000],
            [0.3302, 0.6698]])

    alibi lowers scores with distance, bias is added to them as it is. A row that may attend to nothing gives 0.
    """
    call = checked_call(q, k, v, mask, scale, dropout, alibi, bias)
    T, S, group = q.shape[2], k.shape[2], q.shape[1] // k.shape[1]
    allowed = call.mask.dense(T, S, q.device)  # broadcasts to (B, H, T, S); True = may attend
    if alibi is not None:
        slope = alibi_bias(alibi, torch.arange(T, device=q.device), torch.arange(S, device=q.device), S - T, q.dtype)
        bias = slope if bias is None else bias + slope
    with observed(call, IN_STEPS) as edit, without_autocast(q):
        queries, keys, values = in_float32(q), in_float32(k), in_float32(v)
        keys, values = clear_hidden(keys, allowed), clear_hidden(values, allowed)  # 0 × NaN would be NaN
        if group > 1:  # each key head serves a group of query heads
            keys, values = keys.repeat_interleave(group, dim=1), values.repeat_interleave(group, dim=1)

        scores = step("scores", queries @ keys.mT, "queries @ keys.mT")  # (B, H, T, S)
        masked = scores
        if call.mask is not EVERYTHING:
            masked = step("mask", scores.masked_fill(~allowed, -torch.inf), f"−∞ unless {call.mask.kind}")
        scaled = step("scaled", masked * call.scale, scaling_in_words(call))
        biased = scaled
        if bias is not None:
            added = ("scaled + bias", "") if alibi is None else ("− slope × distance", "near keys win")
            biased = step("bias", scaled + in_float32(bias), *added)
        name = "scaled" if biased is scaled else "bias"
        weights = step("weights", softmax_over_visible(biased, allowed), f"softmax({name})")
        kept = step("dropout", F.dropout(weights, dropout), f"dropout({dropout})") if dropout else weights
        context = step("context", mix_visible(kept, values, allowed), "weights @ values")  # (B, H, T, Dv)

    context, weights = context.to(v.dtype), weights.to(v.dtype)
    if edit is not None:
        context = step("cut", edit.context(context), "what regard.cut leaves", "heads or edges are switched off")
        weights = edit.weights(weights)
    return context, weights


IN_STEPS = Route(
    "in steps",
    "every step is kept to be looked at, so T × S weights are in memory",
    lambda call, parts: attend_in_steps(
        *call.qkv, mask=call.mask, scale=call.scale, dropout=call.dropout, alibi=call.alibi
    )[0],
    leaks_nan=False,
)

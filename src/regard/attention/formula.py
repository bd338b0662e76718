"""The formula of attention, one line per step: the page to read. attend.py computes the same, fast.

scores = q · kᵀ, −∞ where a key is hidden, times the scale (1/√D); weights = softmax(scores); context = weights · v.
B texts, H heads (Hkv of keys and values), T queries, S keys, D numbers in each; query i is at key i + S − T.
Tests compare the two ways, and every kernel of the project with this page. ladder/ has lessons of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.attention.call import checked_call, scaling_in_words
from regard.attention.masks import EVERYTHING, Mask
from regard.attention.numerics import at_least_float32, clear_hidden, softmax_over_visible, undo_nan, without_autocast
from regard.attention.observers import Route, observed
from regard.attention.positions import added_to_scores
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

    mask: a Mask, a bool tensor (True = may attend) or key lengths. alibi: slopes, by which scores fall with distance.
    bias: added to the scaled scores. dropout acts whenever it is above 0. A row that may attend to nothing gives 0.
    """
    call = checked_call(q, k, v, mask, scale, dropout, alibi, bias)  # sizes fit; scale > 0; a bias of −∞ hides, too
    T, S, group = q.shape[2], k.shape[2], q.shape[1] // k.shape[1]
    allowed = call.mask.dense(T, S, q.device)  # broadcasts to (B, H, T, S); True = may attend
    # regard.watch observes the call here, and regard.cut may hand over an edit of its result.
    with observed(call, IN_STEPS) as edit, without_autocast(q):
        queries, keys, values = at_least_float32(q), at_least_float32(k), at_least_float32(v)
        if group > 1:  # each key head serves a group of query heads
            keys, values = keys.repeat_interleave(group, dim=1), values.repeat_interleave(group, dim=1)
        keys, values = clear_hidden(keys, allowed), clear_hidden(values, allowed)  # a NaN that nobody sees harms nobody

        # step() names a tensor for a trace and returns it unchanged.
        scores = step("scores", queries @ keys.mT, "queries @ keys.mT")  # (B, H, T, S)
        masked = scores
        if call.mask is not EVERYTHING:
            masked = step("mask", scores.masked_fill(~allowed, -torch.inf), f"−∞ unless {call.mask.kind}")
        scaled = step("scaled", masked * call.scale, scaling_in_words(call))
        biased = scaled
        if (added := added_to_scores(call)) is not None:
            words = "scaled + bias" if alibi is None else "− slope × distance" + " + bias" * (bias is not None)
            biased = step("bias", scaled + added, words, "" if alibi is None else "near keys win")
        softmax = softmax_over_visible(biased, allowed)  # over the keys; 0 in a row that may attend to nothing
        weights = step("weights", softmax, "softmax(scaled)" if biased is scaled else "softmax(bias)")
        kept = step("dropout", F.dropout(weights, dropout), f"dropout({dropout})") if dropout else weights
        mixed = undo_nan(kept @ values, kept, values, allowed)  # 0 × NaN would be NaN
        context = step("context", mixed, "weights @ values")  # (B, H, T, Dv)

    context, weights = context.to(v.dtype), weights.to(v.dtype)
    if edit is not None:
        context = step("cut", edit.context(context), "what regard.cut leaves", "heads or edges are switched off")
        weights = edit.weights(weights)
    return context, weights


IN_STEPS = Route(  # what observers and explain() are told of a call that is computed here
    "in steps",
    "every step is kept to be looked at, so T × S weights are in memory",
    lambda call, _: attend_in_steps(
        *call.qkv, mask=call.mask, scale=call.scale, dropout=call.dropout, alibi=call.alibi, bias=call.bias
    )[0],
    leaks_nan=False,
)

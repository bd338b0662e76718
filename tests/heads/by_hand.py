"""Cuts by hand: an attention for transformers that writes its weights out, in float64, and cuts in the open.

It knows nothing of interception: heads are set in the context, edges get −∞ in the scores, layer by layer.
"""

from __future__ import annotations

import copy
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

PLAN: dict[str, Any] = {}


def attention(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **options):
    layer = PLAN["layer"]
    PLAN["layer"] += 1
    H, D = query.shape[1], query.shape[3]
    key, value = (t.repeat_interleave(H // t.shape[1], 1) for t in (key, value))
    S = key.shape[2]
    scores = query @ key.mT * (D**-0.5 if scaling is None else scaling)
    if options.get("softcap"):
        scores = torch.tanh(scores / options["softcap"]) * options["softcap"]
    if options.get("position_bias") is not None:
        scores = scores + options["position_bias"]
    if attention_mask is not None:
        mask = attention_mask[..., :S]
        scores = scores.masked_fill(~mask if mask.dtype is torch.bool else mask < -1e4, -torch.inf)
        scores = scores + 0 if mask.dtype is torch.bool else scores + mask.masked_fill(mask < -1e4, 0)
    for number, head, row, col in PLAN["edges"]:
        if number == layer:
            scores[:, slice(None) if head is None else head, row, col] = -torch.inf
    weights = scores.softmax(-1).nan_to_num(0.0)
    context = weights @ value
    PLAN["contexts"].append(context)
    PLAN["weights"].append(weights)
    for (number, head), value in PLAN["heads"].items():
        if number == layer:
            new = context[:, head].mean((0, 1)) if isinstance(value, str) else value
            context = context.clone()
            context[:, head] = new
    return context.transpose(1, 2).contiguous(), weights


AttentionInterface.register("by_hand", attention)
AttentionMaskInterface.register("by_hand", eager_mask)


@contextmanager
def planned(heads: dict[tuple[int, int], Any], edges: list[tuple[int, int | None, int, int]]):
    PLAN.clear()
    PLAN.update(layer=0, heads=heads, edges=edges, contexts=[], weights=[])
    yield PLAN


def output_by_hand(model: nn.Module, inputs: dict[str, Any], heads=None, edges=()) -> tuple[Tensor, dict[str, Any]]:
    """The first output of the model in float64, cut by hand; and the weights and contexts of its layers."""
    double = copy.deepcopy(model).double()
    double.set_attn_implementation("by_hand")
    inputs = {name: t.double() if t.is_floating_point() else t for name, t in inputs.items()}
    with planned(heads or {}, list(edges)) as plan:
        return double(**inputs)[0], dict(plan)


def without_columns(model: nn.Module, projection: str, head: int, H: int, transposed: bool = False) -> nn.Module:
    """A copy of the model whose output projection multiplies what this head hands over by 0."""
    copied = copy.deepcopy(model)
    weight = copied.get_submodule(projection).weight.data
    D = weight.shape[0 if transposed else 1] // H
    part = slice(head * D, (head + 1) * D)
    weight[(part,) if transposed else (slice(None), part)] = 0
    return copied

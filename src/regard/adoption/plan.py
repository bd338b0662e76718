"""Plan: what is known of an attention module, and the layer built from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

import torch
from torch import Tensor, nn

from regard.adoption.layouts import QKV, bias_names, find_bias, weight_name
from regard.attention.layer import MultiHeadAttention


@dataclass(frozen=True)
class Plan:
    """What is known of a module: where its weights are and how it uses them."""

    who: str
    stems: dict[str, str]  # our name of a projection → theirs
    transposed: dict[str, bool]
    num_heads: int
    causal: bool | None
    context_length: int | None
    scale: float | None
    dropout: float
    head_by_head: bool = False  # packed as (heads, 3, head_dim) rather than (3, heads, head_dim)


def state_of(module: nn.Module) -> dict[str, Tensor]:
    """A module's parameters and buffers, also those that are not saved."""
    return {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers())}


def build_layer(plan: Plan, state: Mapping[str, Tensor]) -> MultiHeadAttention:
    """The layer with the weights copied in. What the module does not have is 0 or the identity, and frozen."""
    with torch.enable_grad():  # so that a slice of a weight requires a gradient where the weight does
        parts = find_projections(plan, state)
    q, k, out = parts["W_query"][0], parts["W_key"][0], parts.get("out_proj")
    with torch.device("meta"):  # no random initialisation: it would take time and advance the caller's random state
        layer = MultiHeadAttention(
            q.shape[1],
            len(q),
            plan.context_length,
            plan.dropout,
            plan.num_heads,
            qkv_bias=any(parts[ours][1] is not None for ours in QKV),
            causal=plan.causal is not False,
            num_kv_heads=len(k) // _head_dim(plan, q),
            out_bias=out is None or out[1] is not None,
            scale=plan.scale,
        )
    layer = layer.to(q.dtype).to_empty(device=q.device)
    with torch.no_grad():
        for ours in (*QKV, "out_proj"):
            linear = getattr(layer, ours)
            weight, bias = parts.get(ours, (torch.eye(len(q), dtype=q.dtype, device=q.device), None))
            linear.weight.copy_(weight).requires_grad_(weight.requires_grad)
            if linear.bias is not None:
                linear.bias.copy_(0 if bias is None else bias)
                linear.bias.requires_grad_(bias is not None and bias.requires_grad)
    return layer


def find_projections(plan: Plan, state: Mapping[str, Tensor]) -> dict[str, tuple[Tensor, Tensor | None]]:
    """Weight (out, in) and bias of W_query, W_key, W_value and, where there is one, out_proj; shapes checked."""
    parts = {}
    for ours, stem in plan.stems.items():
        name = weight_name(state, stem) or ""
        weight, bias = state[name], find_bias(state, stem)
        if weight.dim() != 2 or not weight.is_floating_point():
            rule = "adopt() takes matrices of floating-point numbers"
            raise ValueError(f"{name} is {sizes_of(weight)}, {weight.dtype}; {rule}")
        parts[ours] = (weight.t() if plan.transposed[ours] else weight, bias)
        if bias is not None and tuple(bias.shape) != (len(parts[ours][0]),):
            _misfit(plan, state, "a bias must be as long as its projection is wide; is transposed right?")
    kinds = sorted({f"{t.dtype} on {t.device}" for pair in parts.values() for t in pair if t is not None})
    if len(kinds) > 1:
        remedy = "bring it to one with .to(dtype) and .to(device)"
        raise ValueError(f"{plan.who} has weights of several kinds ({', '.join(kinds)}); {remedy}")
    if "qkv" in parts:
        weight, bias = parts.pop("qkv")
        rows = len(weight)
        d_out = parts["out_proj"][0].shape[1] if "out_proj" in parts else rows // 3
        if (rows - d_out) % 2 or rows <= d_out:
            _misfit(plan, state, f"the rows of qkv ({rows}) must be d_out + 2 × the keys' width, with d_out={d_out}")
        widths = [d_out, (rows - d_out) // 2, (rows - d_out) // 2]
        weights = _by_projection(plan, weight).split(widths)
        biases = (None, None, None) if bias is None else _by_projection(plan, bias).split(widths)
        parts |= dict(zip(QKV, zip(weights, biases, strict=True), strict=True))
    _check_parts(plan, state, parts)
    return parts


def _by_projection(plan: Plan, packed: Tensor) -> Tensor:
    """The rows of a packed weight or bias, queries first, then keys, then values."""
    if not plan.head_by_head or len(packed) % (3 * plan.num_heads):
        return packed
    return packed.reshape(plan.num_heads, 3, -1, *packed.shape[1:]).transpose(0, 1).flatten(0, 2)


def _check_parts(plan: Plan, state: Mapping[str, Tensor], parts: dict[str, tuple[Tensor, Tensor | None]]) -> None:
    q, k, v = (parts[ours][0] for ours in QKV)
    d_out, head_dim = len(q), _head_dim(plan, q)
    if len({t.shape[1] for t in (q, k, v)}) > 1:
        _misfit(plan, state, "queries, keys and values must be read from one width, d_in; project them to it first")
    if len(k) != len(v) or (d_out == plan.num_heads * head_dim and (len(k) % head_dim or len(k) > d_out)):
        widths = f"a multiple of head_dim ({head_dim}) and at most {d_out}"
        _misfit(plan, state, f"keys and values must have one width, {widths}")
    if "out_proj" in parts and tuple(parts["out_proj"][0].shape) != (d_out, d_out):
        _misfit(plan, state, f"out_proj must be (d_out, d_out) = ({d_out}, {d_out})")


def _head_dim(plan: Plan, q: Tensor) -> int:
    return max(1, len(q) // max(1, plan.num_heads))  # an impossible num_heads is refused by the layer itself


def _misfit(plan: Plan, state: Mapping[str, Tensor], rule: str) -> NoReturn:
    names = [weight_name(state, stem) or "" for stem in plan.stems.values()]
    names += [name for stem in plan.stems.values() for name in bias_names(stem) if name in state]
    shapes = ", ".join(f"{name} {sizes_of(state[name])}" for name in names)
    misfit = f"the weights of {plan.who} do not fit one layer with num_heads={plan.num_heads}"
    raise ValueError(f"{misfit}: {shapes}; {rule}")


def sizes_of(t: Tensor) -> str:
    """A tensor's shape as it is written in error messages."""
    return f"({', '.join(map(str, t.shape))})"

"""The projections of attention: queries, keys, values and the output, each an nn.Linear that may be hooked or replaced.

On a GPU, queries, keys and values are one matrix product while their weights are small enough to be copied together.
"""

from __future__ import annotations

from typing import Any, TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules import module as _all_modules

from regard.attention.numerics import in_float32_if_emulated, is_emulated
from regard.steps import step

COPIED = 32 * 2**20  # bytes of weights that are copied together; larger ones are multiplied where they are


def project_qkv(
    W_query: nn.Module, W_key: nn.Module, W_value: nn.Module, x: Tensor, source: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries of x, keys and values of `source` (of x where there is none)."""
    x = step("x", in_float32_if_emulated(x), "input")
    name = "x" if source is None else "source"
    if source is None and _is_faster_as_one(x) and (fusable := _fusable(W_query, W_key, W_value)):
        weights, biases = fusable
        bias = torch.cat(biases) if biases else None
        q, k, v = F.linear(x, torch.cat(weights), bias).split_with_sizes([len(w) for w in weights], dim=-1)
    else:
        read = x if source is None else step("source", in_float32_if_emulated(source), "source")
        q, k, v = linear(W_query, x), linear(W_key, read), linear(W_value, read)
    q = step("queries", q, "W_query(x)")
    k = step("keys", k, f"W_key({name})")
    v = step("values", v, f"W_value({name})")
    return q, k, v


def project_out(out_proj: nn.Module, concat: Tensor, x: Tensor) -> Tensor:
    """out_proj(concat), back in the dtype of x where a cache or the precision of this CPU has changed it."""
    if concat.dtype is not x.dtype and not torch.is_autocast_enabled(x.device.type):
        concat = concat.to(in_float32_if_emulated(x).dtype)
    out = linear(out_proj, concat)
    return step("out", out.to(x.dtype) if is_emulated(x) else out, "out_proj(concat)")


def linear(module: nn.Module, x: Tensor) -> Tensor:
    """module(x), computed in the dtype of x where the weights are 16-bit and emulated."""
    if x.dtype is torch.float32 and x.device.type == "cpu":
        weight = getattr(module, "weight", None)
        if isinstance(weight, Tensor) and is_emulated(weight):
            if is_plain(module):
                return F.linear(x, weight.float(), None if module.bias is None else module.bias.float())
            return module(x.to(weight.dtype)).float()  # type: ignore[no-any-return]
    return module(x)  # type: ignore[no-any-return]


def normalize_heads(
    q_norm: nn.RMSNorm | None, k_norm: nn.RMSNorm | None, q: Tensor, k: Tensor
) -> tuple[Tensor, Tensor]:
    """Queries and keys, each vector normalized where the layer has norms for them."""
    if q_norm is None or k_norm is None:
        return q, k
    q = step("normed", normalize(q_norm, q), "q_norm(queries)", "each vector normalized")
    k = step("normed keys", normalize(k_norm, k), "k_norm(keys)", "each vector normalized")
    return q, k


def normalize(norm: nn.RMSNorm, t: Tensor) -> Tensor:
    """norm(t) in the wider of the two dtypes, where autocast or a 16-bit weight makes them differ."""
    wide = torch.promote_types(t.dtype, norm.weight.dtype)
    if norm.weight.dtype is not wide:
        return F.rms_norm(t, norm.normalized_shape, norm.weight.to(wide), norm.eps).to(t.dtype)
    return norm(t.to(wide)).to(t.dtype)  # type: ignore[no-any-return]


def is_plain(module: nn.Module | None) -> TypeGuard[nn.Linear]:
    """Is this an nn.Linear as torch built it, without hooks, so that F.linear with its weight does the same?"""
    return type(module) is nn.Linear and not (
        "forward" in module.__dict__  # replaced on the instance, as some libraries do
        or type(module._parameters.get("weight")) not in (Tensor, nn.Parameter)  # a DTensor, or none: DataParallel
        or "bias" not in module._parameters
        or module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or _all_modules._global_forward_hooks
        or _all_modules._global_forward_pre_hooks
        or _all_modules._global_backward_hooks
        or _all_modules._global_backward_pre_hooks
    )


def _fusable(*projections: nn.Module) -> tuple[list[Any], list[Any]] | None:
    """Weights and biases, if the projections are plain and alike, and small enough to be copied together; else None."""
    if not all(map(is_plain, projections)):
        return None
    # Read from the dict: nn.Module's attribute lookup is slow, and this runs at every call.
    weights = [m._parameters["weight"] for m in projections]
    biases = [b for m in projections if (b := m._parameters["bias"]) is not None]
    small = sum(w.nbytes for w in weights if w is not None) <= COPIED
    return (weights, biases) if small and len(biases) in (0, len(weights)) else None


def _is_faster_as_one(x: Tensor) -> bool:
    return x.is_cuda

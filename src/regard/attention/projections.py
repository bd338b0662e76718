"""The projections of attention: queries, keys, values and the output, each an nn.Linear that may be hooked or replaced.

Two things make them fast. On a GPU, queries, keys and values are one matrix product while their weights are small enough
to be copied together for it. On a CPU without native support for 16-bit dtypes, where such a product takes many times
as long as one in float32, the weights and the results stay 16-bit and the computation is in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeGuard, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules import module as _all_modules

from regard.steps import step
from regard.support.arguments import check_width, name_of

Forward = TypeVar("Forward", bound=Callable[..., Any])


def _without_native_support() -> frozenset[torch.dtype]:
    if not torch.backends.mkldnn.is_available():  # as on Apple's chips, where torch has no way to ask
        return frozenset()
    supported = {torch.bfloat16: "_is_mkldnn_bf16_supported", torch.float16: "_is_mkldnn_fp16_supported"}
    return frozenset(dtype for dtype, name in supported.items() if not getattr(torch.ops.mkldnn, name)())


COPIED = 32 * 2**20  # bytes of weights that are copied together; larger ones are multiplied where they are
EMULATED = _without_native_support()  # 16-bit dtypes without native support on this CPU


def in_float32_if_emulated(forward: Forward) -> Forward:
    """Decorate `forward(self, x, context, …)`: 16-bit inputs without native support are computed in float32."""

    @wraps(forward)
    def run(self: Any, x: Tensor, context: Tensor | None = None, **options: Any) -> Any:
        check_width(x, self.d_in)
        _check_dtype(x, self._modules["W_query"])
        if x.dtype not in EMULATED or x.device.type != "cpu":
            return forward(self, x, context, **options)
        out = forward(self, x.float(), None if context is None else context.float(), **options)
        return out.to(x.dtype) if isinstance(out, Tensor) else tuple(t.to(x.dtype) for t in out)

    return cast(Forward, run)


def project_qkv(
    W_query: nn.Module, W_key: nn.Module, W_value: nn.Module, x: Tensor, context: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries of x, keys and values of `context` (of x where there is none)."""
    if context is None and _is_faster_as_one(x) and (fusable := _fusable(W_query, W_key, W_value)):
        weights, biases = fusable
        bias = torch.cat(biases) if biases else None
        q, k, v = F.linear(x, torch.cat(weights), bias).split_with_sizes([len(w) for w in weights], dim=-1)
    else:
        source = x if context is None else step("context x", context, "context")
        q, k, v = linear(W_query, x), linear(W_key, source), linear(W_value, source)
    name = "x" if context is None else "context x"
    q = step("queries", q, "W_query(x)")
    k = step("keys", k, f"W_key({name})")
    v = step("values", v, f"W_value({name})")
    return q, k, v


def linear(module: nn.Module, x: Tensor) -> Tensor:
    """module(x), computed in the dtype of x where the weights are 16-bit and emulated."""
    if x.dtype is torch.float32 and x.device.type == "cpu":
        weight = getattr(module, "weight", None)
        if isinstance(weight, Tensor) and weight.dtype in EMULATED:
            if is_plain(module):
                return F.linear(x, weight.float(), None if module.bias is None else module.bias.float())
            return module(x.to(weight.dtype)).float()  # type: ignore[no-any-return]
    return module(x)  # type: ignore[no-any-return]


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


def _check_dtype(x: Tensor, projection: nn.Module) -> None:
    # Read from the dict: nn.Module's attribute lookup is slow, and this runs at every call.
    weight = projection._parameters.get("weight") if type(projection) is nn.Linear else None
    if weight is not None and weight.dtype is not x.dtype and not torch.is_autocast_enabled(x.device.type):
        raise ValueError(
            f"x is {name_of(x.dtype)} but this layer's weights are {name_of(weight.dtype)}; "
            f"use x.to({weight.dtype}), layer.to({x.dtype}), or torch.autocast"
        )

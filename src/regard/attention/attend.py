"""Attention, twice: attend_in_steps() is written to be read, attend() to be fast. A test proves them equal.

weights = softmax(q · kᵀ · scale, hidden keys at −∞); context = weights · v.
Nothing else in the project computes attention, except the four rungs of the ladder.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention.call import Call
from regard.attention.fused import (
    BANDED,
    FUSED,
    FUSED_CAUSAL,
    FUSED_CAUSAL_KEYS,
    FUSED_KEYS,
    TILED,
    Route,
    attend_in_tiles,
    hidden_from_all,
)
from regard.attention.masks import EVERYTHING, Mask, Parts, as_mask, to_four_axes
from regard.attention.observers import observed
from regard.attention.positions import alibi_bias
from regard.steps import collecting, step, tracing
from regard.support.arguments import check_dropout, check_tensor, is_exporting
from regard.support.hidden_scores import may_see


def attend(
    q: Float[Tensor, "B H T D"],
    k: Float[Tensor, "B Hkv S D"],
    v: Float[Tensor, "B Hkv S Dv"],
    *,
    mask: Mask | Tensor | Sequence[int] | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    alibi: Float[Tensor, "H"] | None = None,
) -> Float[Tensor, "B H T Dv"]:
    """Mix values by how well each query matches each key, by the fastest exact route.

    >>> import regard
    >>> q = k = v = torch.eye(3).view(1, 1, 3, 3)
    >>> attend(q, k, v, mask=regard.causal())[0, 0, 0]
    tensor([1., 0., 0.])

    `dropout` is applied whenever it is above 0: pass 0.0 in eval. Hkv may divide H (grouped queries), and values may
    have a width of their own.
    A row that may attend to nothing gives 0 and sends gradient 0. `explain()` says which route a call takes.
    """
    if tracing():
        return attend_in_steps(q, k, v, mask=mask, scale=scale, dropout=dropout, alibi=alibi)[0]
    call = _checked_call(q, k, v, mask, scale, dropout, alibi)
    parts = _parts(call)
    route = _choose(call, parts)
    with observed(call, route) as edit:
        out = route.run(call, parts)
        out = _without_leaked_nan(call, out) if route.leaks_nan else out
    return out if edit is None else edit.context(out)


def attend_in_steps(
    q: Float[Tensor, "B H T D"],
    k: Float[Tensor, "B Hkv S D"],
    v: Float[Tensor, "B Hkv S Dv"],
    *,
    mask: Mask | Tensor | Sequence[int] | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    alibi: Float[Tensor, "H"] | None = None,
) -> tuple[Float[Tensor, "B H T Dv"], Float[Tensor, "B H T S"]]:
    """The formula, one line per step; returns the context and the weights (before dropout).

    >>> import regard
    >>> q = k = v = torch.eye(2).view(1, 1, 2, 2)
    >>> context, weights = attend_in_steps(q, k, v, mask=regard.causal())
    >>> weights[0, 0]
    tensor([[1.0000, 0.0000],
            [0.3302, 0.6698]])
    """
    call = _checked_call(q, k, v, mask, scale, dropout, alibi)
    with observed(call, IN_STEPS) as edit:
        context, weights = _whole_formula(call)
    if edit is not None:
        context = step("cut", edit.context(context), "what regard.cut leaves", "heads or edges are switched off")
        weights = edit.weights(weights)
    return context, weights


def attend_rows(call: Call, rows: Int[Tensor, "R"]) -> tuple[Float[Tensor, "B H R Dv"], Float[Tensor, "B H R S"]]:
    """The formula for some queries of a call, of any kind: their context and their weights (before dropout).

    >>> import regard
    >>> q = k = v = torch.eye(2).view(1, 1, 2, 2)
    >>> attend_rows(Call(q=q, k=k, v=v, mask=regard.causal()), torch.tensor([0]))[1]
    tensor([[[[1., 0.]]]])
    """
    q, k, v = call.qkv
    T, S = call.sizes[2:]
    cols = torch.arange(S, device=call.device)
    allowed = to_four_axes(call.mask.tile(rows, cols, S - T)).expand(-1, -1, len(rows), S)
    bias = None
    if call.bias is not None:
        bias = _in_float32(to_four_axes(call.bias))
        bias = bias if bias.shape[2] == 1 else bias[:, :, rows]
        allowed = allowed & may_see(bias)
    if call.alibi is not None:
        slope = alibi_bias(call.alibi, rows, cols, call.shift, q.dtype)
        bias = slope if bias is None else bias + slope
    with collecting(lambda *_: None):  # not the steps of the whole attention
        return _formula(q[:, :, rows], k, v, allowed, bias, call.scale, call.dropout)


def _whole_formula(call: Call) -> tuple[Tensor, Tensor]:
    """The formula for all rows at once."""
    T, S = call.sizes[2:]
    allowed = None if call.mask is EVERYTHING else call.mask.dense(T, S, call.device)
    bias = None
    if call.alibi is not None:
        rows, cols = torch.arange(T, device=call.device), torch.arange(S, device=call.device)
        bias = alibi_bias(call.alibi, rows, cols, call.shift, call.qkv[0].dtype)
    return _formula(*call.qkv, allowed, bias, call.scale, call.dropout, call.mask.kind)


def _formula(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    allowed: Tensor | None,
    bias: Tensor | None,
    scale: float,
    dropout: float,
    rule: str = "",
) -> tuple[Tensor, Tensor]:
    D, dtype = q.shape[-1], v.dtype
    q, k, v = (_in_float32(t) for t in (q, _repeat_heads(k, q), _repeat_heads(v, q)))
    if allowed is not None:
        unseen = hidden_from_all(allowed)
        k, v = k.masked_fill(unseen & ~k.isfinite(), 0), v.masked_fill(unseen & ~v.isfinite(), 0)
    with _no_autocast(q):
        scores = step("scores", q @ k.mT, "queries @ keys.mT")  # (B, H, T, S)
        if allowed is not None:
            scores = step("mask", scores.masked_fill(~allowed, -torch.inf), f"−∞ unless {rule}")
        scaled = step("scaled", scores * scale, _scaling(D, scale))
        if bias is not None:
            scaled = step("bias", scaled + bias, "− slope × distance", "near keys win")
        weights = step("weights", _softmax(scaled, allowed), "softmax(scaled)" if bias is None else "softmax(bias)")
        kept = step("dropout", F.dropout(weights, dropout), f"dropout({dropout})") if dropout else weights
        context = step("context", _mix(kept, v, allowed), "weights @ values")  # (B, H, T, Dv)
    return context.to(dtype), weights.to(dtype)


IN_STEPS = Route(
    "in steps",
    "every step is kept to be looked at, so T × S weights are in memory",
    lambda call, parts: _whole_formula(call)[0],
    leaks_nan=False,
)


def _choose(call: Call, parts: Parts) -> Route:
    """The fastest route that computes this call exactly."""
    _, _, T, S = call.sizes
    if S == 0 or T == 0:
        return IN_STEPS
    if call.alibi is not None:
        return TILED.because("ALiBi's bias is written out in tiles: no fused kernel of SDPA knows it")
    if parts.rest is not None:
        return TILED.because(f"{parts.rest.kind} is written out in tiles: no fused kernel of SDPA knows it")
    last_only = T == 1 and parts.causal  # the last query sees every key: causality hides nothing
    if parts.keys is None and (last_only or (parts.window is None and not parts.causal)):
        return FUSED
    if parts.window is not None:
        return _choose_window(parts.window, T, S)
    if parts.keys is not None and (last_only or not parts.causal):
        return FUSED_KEYS
    if T != S:
        return TILED.because("fewer queries than keys: SDPA's causal flag aligns them at the start, not at the end")
    if parts.keys is None:
        return FUSED_CAUSAL
    if call.qkv[0].dtype is torch.float16 and call.scale < 1e-3:
        return TILED.because("at so small a scale, float16 cannot hold a channel that hides a key")
    return FUSED_CAUSAL_KEYS


def _choose_window(window: int, T: int, S: int) -> Route:
    if is_exporting():  # in an exported graph the number of blocks may not depend on T
        return TILED.because("an exported graph must serve every length, so the window is written out")
    if T == S and 8 * window <= T:
        return BANDED
    return TILED.because("the window is not much narrower than the text, so blocks of it would save little")


def _checked_call(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask | Tensor | Sequence[int] | None,
    scale: float | None,
    dropout: float,
    alibi: Tensor | None,
) -> Call:
    """The arguments as one value, with sizes that fit together."""
    check_tensor(q=q, k=k, v=v)
    if not q.dim() == k.dim() == v.dim() == 4:
        raise ValueError(f"q, k and v must be (B, H, T, D), but have {q.dim()}, {k.dim()} and {v.dim()} axes")
    B, H, T, D = q.shape
    Hkv, S = k.shape[1], k.shape[2]
    if v.shape[:3] != k.shape[:3]:
        raise ValueError(f"k is {tuple(k.shape)} and v is {tuple(v.shape)}; every key needs a value")
    if k.shape[0] != B or k.shape[3] != D:
        raise ValueError(f"q is {tuple(q.shape)} and k is {tuple(k.shape)}; batch and head width must be the same")
    if Hkv == 0 or H % Hkv:
        raise ValueError(f"{H} query heads cannot share {Hkv} key heads evenly; make num_heads a multiple of {Hkv}")
    if scale is not None and not scale > 0:
        raise ValueError(f"scale ({scale}) must be above 0; 1/√{D} = {D**-0.5:.4g} is usual")
    if dropout:
        check_dropout(dropout)
    if alibi is not None and tuple(alibi.shape) != (H,):
        raise ValueError(f"alibi has shape {tuple(alibi.shape)} but there are {H} heads; use alibi_slopes({H})")
    rule = as_mask(mask)
    rule.check(B, H, T, S)
    scale = 1 / math.sqrt(max(D, 1)) if scale is None else scale
    return Call(q=q, k=k, v=v, mask=rule, scale=scale, alibi=alibi, dropout=dropout)


def _parts(call: Call) -> Parts:
    """The mask split into what fused kernels know; a window wider than the keys hides nothing."""
    parts, (T, S) = call.mask.parts(), call.sizes[2:]
    if parts.window is not None and not torch.compiler.is_compiling() and parts.window >= max(S, T):
        return Parts(parts.causal, None, parts.keys, parts.rest)
    return parts


def _without_leaked_nan(call: Call, out: Tensor) -> Tensor:
    """Undo what a kernel's 0 × NaN does to rows that may not see the NaN.

    Fused kernels multiply hidden values by 0, so a NaN or infinity among them reaches rows it is hidden from. On the CPU
    one sum over the output shows it; then the formula runs in tiles, and only rows that see the NaN become NaN.
    """
    if out.device.type != "cpu" or not _may_branch_on(out):
        return out
    if math.isfinite(out.detach().sum(dtype=torch.promote_types(out.dtype, torch.float32)).item()):
        return out
    B, H, _, _ = call.sizes
    return attend_in_tiles(call, lambda *tile: _formula(*tile)[0], copies=B * H)


def _may_branch_on(t: Tensor) -> bool:
    """May Python read this tensor's values? Not in a graph, under a functorch transform, or where it is fake."""
    return not (
        t.is_meta
        or type(t) is not Tensor
        or torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
    )


def _softmax(scaled: Tensor, allowed: Tensor | None) -> Tensor:
    """Softmax over keys; a row that may attend to nothing gives 0 and sends gradient 0."""
    if allowed is None:
        return scaled.softmax(-1)
    nothing = ~allowed.any(-1, keepdim=True)
    return scaled.masked_fill(nothing, 0).softmax(-1).masked_fill(nothing, 0)


def _mix(weights: Tensor, v: Tensor, allowed: Tensor | None) -> Tensor:
    """weights @ v, where a value that a row may not see counts for nothing even if it is NaN or infinite."""
    if allowed is None or not _may_branch_on(v) or v.isfinite().all():
        return weights @ v
    broken = ~v.isfinite()
    reached = allowed.expand(weights.shape).to(v.dtype) @ broken.to(v.dtype) > 0
    return torch.where(reached, weights @ v, weights @ v.masked_fill(broken, 0))


def _repeat_heads(t: Tensor, q: Tensor) -> Tensor:
    """Each key or value head serves H / Hkv query heads."""
    return t if t.shape[1] == q.shape[1] else t.repeat_interleave(q.shape[1] // t.shape[1], dim=1)


def _in_float32(t: Tensor) -> Tensor:
    return t.float() if t.dtype in (torch.float16, torch.bfloat16) else t


def _no_autocast(t: Tensor) -> AbstractContextManager[Any]:
    kind = t.device.type
    return torch.autocast(kind, enabled=False) if kind != "meta" and torch.is_autocast_enabled(kind) else nullcontext()


def _scaling(D: int, scale: float) -> str:
    return f"scores / √{D}" if scale == 1 / math.sqrt(max(D, 1)) else f"scores × {scale:.4g}"

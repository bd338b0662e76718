"""Attention, fast: attend() computes what formula.py says, by the fastest exact route. Tests prove them equal."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.call import Call, checked_call
from regard.attention.formula import IN_STEPS, attend_in_steps
from regard.attention.masks import Mask, Parts
from regard.attention.numerics import kernel_dtype, may_branch_on
from regard.attention.observers import Route, observed
from regard.attention.routes import (
    BANDED,
    FUSED,
    FUSED_CAUSAL,
    FUSED_CAUSAL_KEYS,
    FUSED_KEYS,
    TILED,
    attend_in_tiles,
    largest_score,
)
from regard.steps import tracing
from regard.support.arguments import is_exporting


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
    call = checked_call(q, k, v, mask, scale, dropout, alibi)
    parts = _parts(call)
    route = _choose(call, parts)
    with observed(call, route) as edit:
        context = route.run(call, parts)
        context = _with_nan_of_formula(call, parts, route, context)
    return context if edit is None else edit.context(context)


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
    if kernel_dtype(call.qkv[0]) is torch.float16 and call.scale < 1e-3:
        return TILED.because("at so small a scale, float16 cannot hold a channel that hides a key")
    return FUSED_CAUSAL_KEYS


def _choose_window(window: int, T: int, S: int) -> Route:
    if is_exporting():  # in an exported graph the number of blocks may not depend on T
        return TILED.because("an exported graph must serve every length, so the window is written out")
    if T == S and 8 * window <= T:
        return BANDED
    return TILED.because("the window is not much narrower than the text, so blocks of it would save little")


def _parts(call: Call) -> Parts:
    """The mask split into what fused kernels know; a window wider than the keys hides nothing."""
    parts, (T, S) = call.mask.parts(), call.sizes[2:]
    if parts.window is not None and not torch.compiler.is_compiling() and parts.window >= max(S, T):
        return Parts(parts.causal, None, parts.keys, parts.rest)
    return parts


def _with_nan_of_formula(call: Call, parts: Parts, route: Route, context: Tensor) -> Tensor:
    """A NaN in exactly the rows that have one by the formula, whatever the kernel made of it.

    Fused kernels multiply hidden values by 0, so a NaN or infinity among them reaches rows it is hidden from; and
    torch's kernel for CPUs takes a row whose scores are all NaN for one that sees nothing, and gives 0. A sum over the
    context shows the first, one channel of it the second. Then the formula runs in tiles. Where Python may not read
    values, only the second is mended, by the route itself.
    """
    if context.device.type != "cpu" or context.numel() == 0 or route is IN_STEPS or not may_branch_on(context):
        return context
    found = context.detach()
    leaked = route.leaks_nan and not _is_finite(found.sum(dtype=torch.promote_types(found.dtype, torch.float32)))
    if not leaked and (found.select(-1, 0).all().item() or _is_finite(largest_score(*call.qkv[:2]).sum())):
        return context
    B, H, _, _ = call.sizes
    return attend_in_tiles(call, lambda q, k, v, **tile: attend_in_steps(q, k, v, **tile)[0], copies=B * H)


def _is_finite(number: Tensor) -> bool:
    return math.isfinite(number.item())

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
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from regard.arguments import check_dropout, exporting
from regard.attention.masks import CAUSAL, EVERYTHING, Mask, Padding, Parts, as_mask
from regard.attention.observers import Path, observed, telling
from regard.attention.positions import alibi_bias
from regard.steps import step, tracing

# A mask that no kernel knows is written out this many entries at a time, never T × S at once.
TILE = 1 << 22


FUSED = Path("fused", "no mask tensor: the kernel reads q, k and v once")
FUSED_CAUSAL = Path("fused causal", "no mask tensor: the kernel skips the future by itself")
FUSED_KEYS = Path("fused, key mask", "one row of B × S, shared by all queries and heads")
FUSED_CAUSAL_KEYS = Path("fused causal, key mask", "padded keys are hidden by one more channel; no mask tensor")
BANDED = Path("banded", "blocks of the window's width: T × 2·window of mask instead of T × T")
IN_STEPS = Path("in steps", "every step is kept to be looked at, so T × S weights are in memory")

_CAUSAL_PARTS, _NO_PARTS = CAUSAL.parts(), EVERYTHING.parts()


def attend(
    q: Float[Tensor, "B H T D"],
    k: Float[Tensor, "B Hkv S D"],
    v: Float[Tensor, "B Hkv S D"],
    *,
    mask: Mask | Tensor | Sequence[int] | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    alibi: Float[Tensor, "H"] | None = None,
) -> Float[Tensor, "B H T D"]:
    """Mix values by how well each query matches each key, by the fastest exact way there is.

    >>> import regard
    >>> q = k = v = torch.eye(3).view(1, 1, 3, 3)
    >>> attend(q, k, v, mask=regard.causal())[0, 0, 0]
    tensor([1., 0., 0.])

    `dropout` acts whenever it is above 0: pass 0.0 in eval. Hkv may divide H (grouped queries).
    A row that may attend to nothing gives 0 and sends gradient 0. `explain()` says which way a call takes.
    """
    if tracing():
        return attend_in_steps(q, k, v, mask=mask, scale=scale, dropout=dropout, alibi=alibi)[0]
    mask, parts = _fit(q, k, v, mask, scale, dropout, alibi)
    path = _choose(parts, q, k, scale, alibi)
    if path is IN_STEPS:
        return attend_in_steps(q, k, v, mask=mask, scale=scale, dropout=dropout, alibi=alibi)[0]
    if observed():
        with telling(path, q, k, v, dropout, mask, scale, alibi):
            return _along(path, q, k, v, mask, parts, scale, dropout, alibi)
    return _along(path, q, k, v, mask, parts, scale, dropout, alibi)


def attend_in_steps(
    q: Float[Tensor, "B H T D"],
    k: Float[Tensor, "B Hkv S D"],
    v: Float[Tensor, "B Hkv S D"],
    *,
    mask: Mask | Tensor | Sequence[int] | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    alibi: Float[Tensor, "H"] | None = None,
) -> tuple[Float[Tensor, "B H T D"], Float[Tensor, "B H T S"]]:
    """The formula, one line a step; returns the context and the weights (before dropout).

    >>> import regard
    >>> q = k = v = torch.eye(2).view(1, 1, 2, 2)
    >>> context, weights = attend_in_steps(q, k, v, mask=regard.causal())
    >>> weights[0, 0]
    tensor([[1.0000, 0.0000],
            [0.3302, 0.6698]])
    """
    mask, _ = _fit(q, k, v, mask, scale, dropout, alibi)
    T, S = q.shape[2], k.shape[2]
    allowed = None if mask is EVERYTHING else mask.dense(T, S, q.device)
    bias = None if alibi is None else _alibi(alibi, T, S, q.device)
    if observed():
        with telling(IN_STEPS, q, k, v, dropout, mask, scale, alibi):
            return _steps(q, k, v, allowed, bias, scale, dropout, mask.kind)
    return _steps(q, k, v, allowed, bias, scale, dropout, mask.kind)


def _along(
    path: Path, q: Tensor, k: Tensor, v: Tensor, mask: Mask, parts: Parts, scale: float | None, dropout: float,
    alibi: Tensor | None,
) -> Tensor:  # fmt: skip
    if path is FUSED:
        if parts.window is not None:  # one query at the end: its window is a slice
            k, v = k[:, :, -parts.window :], v[:, :, -parts.window :]
        return _sdpa(q, k, v, scale, dropout)
    if path is FUSED_CAUSAL:
        out = _sdpa(q, k, v, scale, dropout, is_causal=True)
    elif path is FUSED_KEYS:
        assert parts.keys is not None
        return _masked(q, k, v, _kept(parts.keys, k)[:, None, None, :], scale, dropout)
    elif path is FUSED_CAUSAL_KEYS:
        out = _causal_with_keys(q, k, v, parts, scale, dropout)
    elif path is BANDED:
        out = _banded(q, k, v, parts, scale, dropout)
    else:
        out = _tiled(q, k, v, mask, scale, dropout, alibi)
    return _checked(out, q, k, v, mask, scale, dropout, alibi)


def _steps(
    q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, bias: Tensor | None, scale: float | None, dropout: float,
    rule: str = "",
) -> tuple[Tensor, Tensor]:  # fmt: skip
    D, dtype = q.shape[-1], v.dtype
    q, k, v = (_wide(t) for t in (q, _shared(k, q), _shared(v, q)))  # half precision is mixed in float32
    if allowed is not None:
        k, v = _without_unseen(k, v, allowed, only_broken=True)
    with _no_autocast(q):
        scores = step("scores", q @ k.mT, "queries @ keys.mT")  # (B, H, T, S)
        if allowed is not None:
            scores = step("mask", scores.masked_fill(~allowed, -torch.inf), f"−∞ unless {rule}")
        scaled = step("scaled", scores * (D**-0.5 if scale is None else scale), _scaling(D, scale))
        if bias is not None:
            scaled = step("bias", scaled + bias, "− slope × distance", "near keys win")
        weights = step("weights", _softmax(scaled, allowed), "softmax(scaled)")
        kept = step("dropout", F.dropout(weights, dropout), f"dropout({dropout})") if dropout else weights
        context = step("context", _mix(kept, v, allowed), "weights @ values")  # (B, H, T, D)
    return context.to(dtype), weights.to(dtype)


def _choose(parts: Parts, q: Tensor, k: Tensor, scale: float | None, alibi: Tensor | None) -> Path:
    T, S = q.shape[2], k.shape[2]
    if S == 0 or T == 0:
        return IN_STEPS
    if alibi is not None:
        return Path("tiled", "ALiBi's bias is written out in tiles: no fused kernel of SDPA knows it")
    if parts.rest is not None:
        return Path("tiled", f"{parts.rest.kind} is written out in tiles: no fused kernel of SDPA knows it")
    last_only = T == 1 and parts.causal  # the last query sees every key: nothing is hidden by causality
    if parts.keys is None and (last_only or (parts.window is None and not parts.causal)):
        return FUSED
    if parts.window is None:
        if parts.keys is not None and (last_only or not parts.causal):
            return FUSED_KEYS
        if T == S and parts.keys is None:
            return FUSED_CAUSAL
        if T == S and q.dtype is torch.float16 and scale is not None and scale < 1e-3:
            return Path("tiled", "at so small a scale, float16 cannot hold a channel that hides a key")
        if T == S:
            return FUSED_CAUSAL_KEYS
        return Path("tiled", "fewer queries than keys: SDPA's causal flag aligns them at the start, not at the end")
    if exporting():  # how many blocks there are may not depend on T in an exported graph
        return Path("tiled", "an exported graph must serve every length, so the window is written out")
    if T == S and 8 * parts.window <= T:
        return BANDED
    return Path("tiled", "the window is not much narrower than the text, so blocks of it would save little")


def _fit(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask | Tensor | Sequence[int] | None, scale: float | None, dropout: float,
    alibi: Tensor | None,
) -> tuple[Mask, Parts]:  # fmt: skip
    """Check sizes, and take the mask apart; a window wider than the keys hides nothing."""
    if not q.dim() == k.dim() == v.dim() == 4:
        raise ValueError(f"q, k and v must be (B, H, T, D), but have {q.dim()}, {k.dim()} and {v.dim()} axes")
    B, H, T, D = q.shape
    Hkv, S = k.shape[1], k.shape[2]
    if v.shape != k.shape:
        raise ValueError(f"k is {tuple(k.shape)} and v is {tuple(v.shape)}; every key needs a value of the same width")
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
    if mask is CAUSAL or mask is None:
        return (CAUSAL, _CAUSAL_PARTS) if mask is CAUSAL else (EVERYTHING, _NO_PARTS)
    mask = as_mask(mask)
    mask.check(B, H, T, S)
    parts = mask.parts()
    if parts.window is not None and not torch.compiler.is_compiling() and parts.window >= max(S, T):
        parts = Parts(parts.causal, None, parts.keys, parts.rest)
    return mask, parts


def _sdpa(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None,
    dropout: float,
    allowed: Tensor | None = None,
    is_causal: bool = False,
) -> Tensor:
    return F.scaled_dot_product_attention(
        q,
        k,
        v,
        attn_mask=allowed,
        dropout_p=dropout,
        is_causal=is_causal,
        scale=scale,
        enable_gqa=bool(q.shape[1] != k.shape[1]),
    )


def _masked(
    q: Tensor, k: Tensor, v: Tensor, allowed: Bool[Tensor, "_ _ _ _"], scale: float | None, dropout: float,
    bias: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """SDPA with a mask tensor, made safe: rows that see nothing give 0, keys that nobody sees may hold anything."""
    seen = allowed.any(-1, keepdim=True)  # (B, H, T, 1)
    k, v = _without_unseen(k, v, allowed)
    allowed = allowed | ~seen  # softmax over nothing would be NaN: such a row sees all, and is zeroed below
    shown = allowed if bias is None else bias.to(q.dtype).masked_fill(~allowed, -torch.inf)
    with masked_kernels(q):
        out = _sdpa(q, k, v, scale, dropout, shown)
    return out.masked_fill(~seen, 0)


def masked_kernels(q: Tensor) -> AbstractContextManager[Any]:
    """All kernels but cuDNN's, whose gradient is NaN for some masked shapes (pytorch#196678)."""
    kernels = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    return sdpa_kernel(kernels) if q.is_cuda else nullcontext()


def _without_unseen(k: Tensor, v: Tensor, allowed: Tensor, only_broken: bool = False) -> tuple[Tensor, Tensor]:
    """Empty the keys and values that nobody sees: 0 × NaN would be NaN, in the output and in gradients."""
    unseen = ~allowed.any(-2, keepdim=True).any(1, keepdim=True).mT  # (B, 1, S, 1)
    if only_broken:
        return k.masked_fill(unseen & ~k.isfinite(), 0), v.masked_fill(unseen & ~v.isfinite(), 0)
    return k.masked_fill(unseen, 0), v.masked_fill(unseen, 0)


def _causal_with_keys(q: Tensor, k: Tensor, v: Tensor, parts: Parts, scale: float | None, dropout: float) -> Tensor:
    """Causal attention over padded keys without a mask tensor.

    One more channel, high in every query and low in every padded key, takes those keys' scores so far down that their
    weights are exactly 0, inside the fused causal kernel. Not further than a billion, which real scores stay far
    below: a row that sees only padding must still be able to subtract its largest score and keep some digits.
    Eight channels, because kernels want eights.
    """
    assert parts.keys is not None
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    high = math.sqrt(1e9 / scale)
    high = min(high, 60_000.0) if q.dtype is torch.float16 else high
    hidden = ~_kept(parts.keys, k)[:, None, :, None]
    extra = F.pad(hidden.to(k.dtype) * -high, (0, 7)).expand(k.shape[0], k.shape[1], -1, -1)
    wide_k = torch.cat([k.masked_fill(hidden, 0), extra], dim=-1)
    wide_q = torch.cat([q, F.pad(q.new_full((*q.shape[:3], 1), high), (0, 7))], dim=-1)
    wide_v = F.pad(v.masked_fill(hidden, 0), (0, 8))
    # A row with only padding behind it mixes padded values, which are 0: no row needs clearing.
    return _sdpa(wide_q, wide_k, wide_v, scale, dropout, is_causal=True)[..., : v.shape[-1]]


def _banded(q: Tensor, k: Tensor, v: Tensor, parts: Parts, scale: float | None, dropout: float) -> Tensor:
    """A window as a batch of blocks, each against its own keys and its neighbours': linear in T."""
    assert parts.window is not None
    (B, H, T, D), W = q.shape, parts.window
    n = (T + W - 1) // W
    reach = 2 if parts.causal else 3  # blocks of keys that a block of queries can see
    fill = n * W - T
    after = fill if parts.causal else fill + W

    def blocks(t: Tensor, size: int, before: int, end: int) -> Tensor:
        cut = F.pad(t, (0, 0, before, end)).unfold(2, size, W)  # (B, h, n, D, size)
        return cut.permute(0, 2, 1, 4, 3).reshape(B * n, t.shape[1], size, D)

    rows = torch.arange(n * W, device=q.device).view(n, W, 1)
    cols = torch.arange(n, device=q.device).view(n, 1, 1) * W - W + torch.arange(reach * W, device=q.device)
    allowed = ((rows - cols).abs() < W) & (cols >= 0) & (cols < T) & (rows < T)  # (n, W, reach·W)
    if parts.causal:
        allowed = allowed & (cols <= rows)
    allowed = allowed.expand(B, *allowed.shape)
    if parts.keys is not None:
        allowed = allowed & _kept(parts.keys, k)[:, cols.clamp(0, T - 1)]
    allowed = allowed.reshape(B * n, 1, W, reach * W)
    keys, values = (blocks(t, reach * W, W, after) for t in (k, v))
    out = _masked(blocks(q, W, 0, fill), keys, values, allowed, scale, dropout)
    return out.view(B, n, H, W, D).transpose(1, 2).reshape(B, H, n * W, D)[:, :, :T]


def _tiled(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, scale: float | None, dropout: float, alibi: Tensor | None,
    exact: bool = False,
) -> Tensor:  # fmt: skip
    """Any mask, written out a few rows at a time, and only for the keys that those rows can reach."""
    T, S = q.shape[2], k.shape[2]
    shift = S - T

    def one(q: Tensor, k: Tensor, v: Tensor, first: int, low: int) -> Tensor:
        rows = torch.arange(first, first + q.shape[2], device=q.device)
        cols = torch.arange(low, low + k.shape[2], device=q.device)
        allowed = mask.tile(rows, cols, shift)
        allowed = allowed.reshape((1,) * (4 - allowed.dim()) + tuple(allowed.shape))
        allowed = allowed.expand(*allowed.shape[:2], q.shape[2], k.shape[2])
        bias = None if alibi is None else alibi_bias(alibi, rows, cols, shift)[None]
        if exact:
            return _steps(q, k, v, allowed, bias, scale, dropout)[0]
        return _masked(q, k, v, allowed, scale, dropout, bias)

    # Compiled graphs take it whole: a loop whose length depends on T would be compiled anew for each T.
    rows = T if torch.compiler.is_compiling() else _rows(q, k, mask, exact, alibi)
    if rows >= T:
        return one(q, k, v, 0, 0)
    keep = torch.is_grad_enabled() and not torch._C._are_functorch_transforms_active()
    out = []
    for first in range(0, T, rows):
        last = min(first + rows, T)
        low, high = mask.span(first + shift, last - 1 + shift, S)
        if high <= low:
            low, high = 0, 1  # nobody here sees anything: any one key will do, the rows become 0
        tile = (q[:, :, first:last], k[:, :, low:high], v[:, :, low:high], first, low)
        # A tile's mask is rebuilt in backward rather than kept: kept, they would add up to T × S.
        if keep:
            out.append(checkpoint(one, *tile, use_reentrant=False, preserve_rng_state=dropout > 0))
        else:
            out.append(one(*tile))
    return torch.cat(out, dim=2)


def _rows(q: Tensor, k: Tensor, mask: Mask, exact: bool, alibi: Tensor | None) -> int:
    """How many rows fit one tile: a mask may differ by batch element and head, and scores do."""
    (B, H, T, _), S = q.shape, k.shape[2]
    corner = torch.zeros(1, dtype=torch.long, device=q.device)
    copies = (
        B * H if exact else math.prod(mask.tile(corner, corner, S - T).shape[:-2]) * (H if alibi is not None else 1)
    )
    return T if T * S * copies <= TILE else max(16, TILE // (S * max(copies, 1)))


def _checked(
    out: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Mask, scale: float | None, dropout: float,
    alibi: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Undo what a kernel's 0 × NaN does to rows that may not see the NaN.

    Fused kernels multiply hidden values by 0, so a NaN or infinity among them reaches rows it is hidden from.
    On the CPU one sum over the output tells; then the exact way runs, and only those rows that see it are NaN.
    """
    if out.device.type != "cpu" or not _may_look(out):
        return out
    if math.isfinite(out.detach().sum(dtype=torch.promote_types(out.dtype, torch.float32)).item()):
        return out
    return _tiled(q, k, v, mask, scale, dropout, alibi, exact=True)


def _may_look(t: Tensor) -> bool:
    """May the code branch on this tensor's values? Not in a graph, a transform or a fake."""
    return not (
        t.is_meta
        or type(t) is not Tensor
        or torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
    )


def _mix(weights: Tensor, v: Tensor, allowed: Tensor | None) -> Tensor:
    """weights @ v, where what a row may not see counts for nothing even if it is NaN or infinite."""
    if allowed is None or not _may_look(v) or v.isfinite().all():
        return weights @ v
    broken = ~v.isfinite()
    reached = allowed.expand(weights.shape).to(v.dtype) @ broken.to(v.dtype) > 0
    return torch.where(reached, weights @ v, weights @ v.masked_fill(broken, 0))


def _softmax(scaled: Tensor, allowed: Tensor | None) -> Tensor:
    """Softmax over keys; a row that may attend to nothing gives 0 and sends gradient 0."""
    if allowed is None:
        return scaled.softmax(-1)
    nothing = ~allowed.any(-1, keepdim=True)
    return scaled.masked_fill(nothing, 0).softmax(-1).masked_fill(nothing, 0)


def _alibi(slopes: Tensor, T: int, S: int, device: torch.device) -> Tensor:
    return alibi_bias(slopes, torch.arange(T, device=device), torch.arange(S, device=device), S - T)


def _kept(keys: Tensor, k: Tensor) -> Bool[Tensor, "B S"]:
    cols = torch.arange(k.shape[2], device=k.device)
    return Padding(keys).tile(cols[:1], cols, 0)[:, 0, 0].expand(k.shape[0], -1)


def _shared(t: Tensor, q: Tensor) -> Tensor:
    """Each key or value head serves H / Hkv query heads."""
    return t if t.shape[1] == q.shape[1] else t.repeat_interleave(q.shape[1] // t.shape[1], dim=1)


def _wide(t: Tensor) -> Tensor:
    return t.float() if t.dtype in (torch.float16, torch.bfloat16) else t


def _no_autocast(t: Tensor) -> AbstractContextManager[Any]:
    kind = t.device.type
    return torch.autocast(kind, enabled=False) if kind != "meta" and torch.is_autocast_enabled(kind) else nullcontext()


def _scaling(D: int, scale: float | None) -> str:
    return f"scores / √{D}" if scale is None else f"scores × {scale:.4g}"

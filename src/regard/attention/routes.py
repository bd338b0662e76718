"""Routes: the ways attend() can compute a call through torch's scaled_dot_product_attention (SDPA).

All of them compute the same, without a T × S matrix in memory. What differs is how a mask is expressed: by SDPA's own
causal flag, by one row per text, by extra channels, by blocks of a window's width, or by a few rows at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from regard.attention.call import Call
from regard.attention.formula import attend_in_steps
from regard.attention.masks import Parts, key_padding
from regard.attention.numerics import at_least_float32, hidden_from_all, kernel_dtype, may_branch_on
from regard.attention.observers import Route, unobserved
from regard.attention.positions import added_to_scores
from regard.steps import collecting

TILE = 1 << 22  # entries of a mask that are in memory at once; a mask is never written out as T × S


def _fused(call: Call, parts: Parts) -> Tensor:
    q, k, v = call.qkv
    if parts.window is not None:  # a single query at the end: its window is a slice
        k, v = k[:, :, -parts.window :], v[:, :, -parts.window :]
    return _sdpa(q, k, v, call.scale, call.dropout)


def _fused_causal(call: Call, parts: Parts) -> Tensor:
    return _sdpa(*call.qkv, call.scale, call.dropout, is_causal=True)


def _fused_keys(call: Call, parts: Parts) -> Tensor:
    real = _real_keys(call, parts)[:, None, None, :]
    return masked_sdpa(*call.qkv, mask=real, scale=call.scale, dropout=call.dropout)


def _fused_causal_keys(call: Call, parts: Parts) -> Tensor:
    """Causal attention over padded keys without a mask tensor.

    Extra channels, high in every query and low in every padded key, lower the scores of those keys so far that their
    weights are exactly 0, inside the fused causal kernel. Eight of them, because kernels want multiples of eight.
    """
    q, k, v = (t.to(kernel_dtype(t)) for t in call.qkv)
    real = _real_keys(call, parts)
    hidden = ~real[:, None, :, None]
    k, v = k.masked_fill(hidden, 0), v.masked_fill(hidden, 0)
    high = _hiding_value(q, k, call.scale)  # (B, 1, 1, 1)
    extra = (hidden * -high).to(k.dtype).expand(-1, k.shape[1], -1, 8)
    wide_k = torch.cat([k, extra], dim=-1)
    wide_q = torch.cat([q, high.to(q.dtype).expand(-1, *q.shape[1:3], 8)], dim=-1)
    # A row that sees only padding averages padded values, which are 0.
    out = _sdpa(wide_q, wide_k, F.pad(v, (0, 8)), call.scale, call.dropout, is_causal=True)[..., : v.shape[-1]]
    return out if may_branch_on(out) else out.masked_fill(real.cumsum(-1)[:, None, :, None] == 0, 0)


@torch.no_grad()
def _hiding_value(q: Tensor, k: Tensor, scale: float) -> Float[Tensor, "B 1 1 1"]:
    """The number that, in eight channels of a query and negative in eight of a key, puts its score below all others.

    By −1e9, or by four times the largest score that these queries and keys could have, whichever is lower. Where there
    is a NaN or an infinity, no score can be said to be the largest, and −1e9 must do. It is computed for each text, and
    never read by Python, so that a GPU need not be waited for.
    """
    if 0 in (q.shape[1], q.shape[3]):  # nothing has no largest number
        return q.new_ones(q.shape[0], 1, 1, 1)
    products = largest_score(q, k).nan_to_num(nan=0.0, posinf=0.0)
    high = products.clamp(1e9 / (4 * scale), 1e37).div(2).sqrt()  # 8 · high² = 4 · products
    return high.clamp(max=60_000.0) if q.dtype is torch.float16 else high


@torch.no_grad()
def largest_score(q: Tensor, k: Tensor) -> Float[Tensor, "B 1 1 1"]:
    """What no score of a text can exceed, before the scale; NaN or infinite where an input is, or a product may be."""
    wide = torch.float64 if q.dtype is torch.float64 else torch.float32
    largest: list[Tensor] = [torch.linalg.vector_norm(t, math.inf, (1, 2, 3), keepdim=True, dtype=wide) for t in (q, k)]
    return q.shape[-1] * (largest[0] * largest[1])


def _banded(call: Call, parts: Parts) -> Tensor:
    """A window as a batch of blocks, each attending to its own keys and its neighbours': linear in T."""
    q, k, v = call.qkv
    assert parts.window is not None
    (B, H, T, _), W = q.shape, parts.window
    n = (T + W - 1) // W
    reach = 2 if parts.causal else 3  # blocks of keys that a block of queries can see
    fill = n * W - T
    after = fill if parts.causal else fill + W

    def blocks(t: Tensor, size: int, before: int, end: int) -> Tensor:
        cut = F.pad(t, (0, 0, before, end)).unfold(2, size, W)  # (B, h, n, D, size)
        return cut.permute(0, 2, 1, 4, 3).reshape(B * n, t.shape[1], size, t.shape[3])

    rows = torch.arange(n * W, device=q.device).view(n, W, 1)
    cols = torch.arange(n, device=q.device).view(n, 1, 1) * W - W + torch.arange(reach * W, device=q.device)
    allowed = ((rows - cols).abs() < W) & (cols >= 0) & (cols < T) & (rows < T)  # (n, W, reach·W)
    if parts.causal:
        allowed = allowed & (cols <= rows)
    allowed = allowed.expand(B, *allowed.shape)
    if parts.keys is not None:
        allowed = allowed & _real_keys(call, parts)[:, cols.clamp(0, T - 1)]
    allowed = allowed.reshape(B * n, 1, W, reach * W)
    keys, values = (blocks(t, reach * W, W, after) for t in (k, v))
    out = masked_sdpa(blocks(q, W, 0, fill), keys, values, mask=allowed, scale=call.scale, dropout=call.dropout)
    return out.view(B, n, H, W, v.shape[3]).transpose(1, 2).reshape(B, H, n * W, v.shape[3])[:, :, :T]


def _tiled(call: Call, parts: Parts) -> Tensor:
    zero = torch.zeros(1, dtype=torch.long, device=call.device)
    one_entry = call.mask.tile(zero, zero, call.shift)  # its shape shows whether texts and heads have their own masks
    heads = call.sizes[1] if call.alibi is not None else 1
    return attend_in_tiles(call, masked_sdpa, copies=math.prod(one_entry.shape[:-2]) * heads)


FUSED = Route("fused", "no mask tensor: the kernel reads q, k and v once", _fused, leaks_nan=False)
FUSED_CAUSAL = Route("fused causal", "no mask tensor: the kernel skips the future by itself", _fused_causal)
FUSED_KEYS = Route("fused, key mask", "one row of B × S, shared by all queries and heads", _fused_keys, leaks_nan=False)
_WHY = "padded keys are hidden by extra channels; no mask tensor"
FUSED_CAUSAL_KEYS = Route("fused causal, key mask", _WHY, _fused_causal_keys)
BANDED = Route("banded", "blocks of the window's width: T × 2·window of mask instead of T × T", _banded)
TILED = Route("tiled", "the mask is written out in tiles: no fused kernel of SDPA knows it", _tiled)


def attend_in_tiles(call: Call, attend_tile: Callable[..., Tensor], copies: int) -> Tensor:
    """Any mask, written out a few rows at a time, and only for the keys that those rows can reach.

    attend_tile(q, k, v, mask=, bias=, scale=, dropout=): attention for a few rows, with their mask as a tensor.
    copies: how many (rows × S) matrices attend_tile needs at once; it decides how many rows fit into a tile.
    """
    q, k, v = call.qkv
    (T, S), shift = call.sizes[2:], call.shift

    def one_tile(q: Tensor, k: Tensor, v: Tensor, first: int, low: int) -> Tensor:
        rows = torch.arange(first, first + q.shape[2], device=q.device)
        cols = torch.arange(low, low + k.shape[2], device=q.device)
        allowed, bias = call.allowed(rows, cols), added_to_scores(call, rows, cols)
        return attend_tile(q, k, v, mask=allowed, bias=bias, scale=call.scale, dropout=call.dropout)

    # A compiled graph takes one tile: a loop whose length depends on T would be compiled again for every T.
    if torch.compiler.is_compiling() or T * S * copies <= TILE:
        return one_tile(q, k, v, 0, 0)
    size = max(16, TILE // (S * max(copies, 1)))
    # A tile's mask is computed again in backward: kept, all tiles together would be T × S.
    recompute = torch.is_grad_enabled() and not torch._C._are_functorch_transforms_active()
    recomputed = partial(checkpoint, one_tile, use_reentrant=False, preserve_rng_state=call.dropout > 0)
    out = []
    for first in range(0, T, size):
        last = min(first + size, T)
        low, high = call.mask.span(first + shift, last - 1 + shift, S)
        if high <= low:
            low, high = 0, 1  # these rows see nothing and become 0: any one key will do
        tile = (q[:, :, first:last], k[:, :, low:high], v[:, :, low:high], first, low)
        out.append((recomputed if recompute else one_tile)(*tile))
    return torch.cat(out, dim=2)


def attend_rows(call: Call, rows: Int[Tensor, "R"]) -> tuple[Float[Tensor, "B H R Dv"], Float[Tensor, "B H R S"]]:
    """The formula for some queries of a call: their context and weights, also where T × S weights would not fit."""
    q, k, v = call.qkv
    cols = torch.arange(k.shape[2], device=call.device)
    allowed, bias = call.allowed(rows, cols), added_to_scores(call, rows, cols)
    with collecting(lambda *_: None), unobserved():  # neither a step of a trace nor an attention of the model
        return attend_in_steps(q[:, :, rows], k, v, mask=allowed, scale=call.scale, dropout=call.dropout, bias=bias)


def masked_sdpa(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Bool[Tensor, "_ _ _ _"],
    scale: float,
    dropout: float,
    bias: Tensor | None = None,
) -> Tensor:
    """SDPA with a mask tensor, made safe: rows that see nothing give 0, keys that nobody sees may hold anything."""
    seen = mask.any(-1, keepdim=True)  # (B, H, T, 1)
    unseen = hidden_from_all(mask)
    k, v = k.masked_fill(unseen, 0), v.masked_fill(unseen, 0)
    allowed = mask | ~seen  # softmax over nothing would be NaN: such a row sees all keys, and is set to 0 below
    attn_mask = allowed if bias is None else bias.to(q.dtype).masked_fill(~allowed, -torch.inf)
    with masked_kernels(q):
        out = _sdpa(q, k, v, scale, dropout, attn_mask=attn_mask)
    return out.masked_fill(~seen, 0)


def masked_kernels(q: Tensor) -> AbstractContextManager[Any]:
    """All kernels but cuDNN's, whose gradient is NaN for some masked shapes (pytorch#196678)."""
    kernels = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    return sdpa_kernel(kernels) if q.is_cuda else nullcontext()


def _real_keys(call: Call, parts: Parts) -> Bool[Tensor, "B S"]:
    assert parts.keys is not None
    B, _, _, S = call.sizes
    return key_padding(parts.keys, S, call.device).expand(B, -1)


def _sdpa(q: Tensor, k: Tensor, v: Tensor, scale: float, dropout: float, **options: Any) -> Tensor:
    options |= {"scale": scale, "dropout_p": dropout}
    if q.shape[1] != k.shape[1]:  # `enable_gqa` takes no bool of sizes that are symbols in a graph
        options["enable_gqa"] = True
    width = v.shape[-1]
    out = F.scaled_dot_product_attention(*same_width(q, k, v), **options)
    out = out if out.shape[-1] == width else out[..., :width]
    return out if may_branch_on(out) or out.device.type != "cpu" or q.numel() == 0 else _with_lost_nan(q, k, out)


def _with_lost_nan(q: Tensor, k: Tensor, out: Tensor) -> Tensor:
    """A NaN in the rows whose scores are all NaN or infinite: torch's kernel for CPUs gives them 0.

    For graphs and transforms, so without a branch: a row is lost if it is 0 and its scores have no finite bound.
    """
    largest = at_least_float32(k).abs().amax((1, 2, 3), keepdim=True) * k.shape[-1]
    bound = at_least_float32(q).abs().amax(-1, keepdim=True) * largest
    return out.masked_fill(~bound.isfinite() & (out == 0).all(-1, keepdim=True), math.nan)


def same_width(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The narrower of keys and values filled up with zeros: the fused kernels want one width for all."""
    more = v.shape[-1] - k.shape[-1]
    if more == 0:
        return q, k, v
    return (F.pad(q, (0, more)), F.pad(k, (0, more)), v) if more > 0 else (q, k, F.pad(v, (0, -more)))

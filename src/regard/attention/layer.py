"""MultiHeadAttention: the layer to ship. It computes what ladder/multi_head.py shows, at fused speed.

Adds to that rung: no mask in memory, cross-attention, grouped queries, windows, positions and a cache.
Project → split → transpose → attend → concat → project; attend.py holds the formula.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.arguments import check_dropout, check_heads, check_length, check_whole, check_width
from regard.attention.attend import attend, attend_in_steps
from regard.attention.cache import Slot
from regard.attention.masks import CAUSAL, EVERYTHING, Mask, as_mask
from regard.attention.masks import window as window_mask
from regard.attention.positions import Rotary, alibi_slopes
from regard.attention.side_by_side import SLOW_ON_CPU, SideBySide, plain
from regard.steps import step, tracing


class MultiHeadAttention(SideBySide):
    """Multi-head attention to read, see and ship.

    >>> layer = MultiHeadAttention(d_in=768, d_out=768, context_length=1024, dropout=0.1, num_heads=12)
    >>> layer(torch.randn(2, 100, 768)).shape
    torch.Size([2, 100, 768])

    Weights are W_query, W_key, W_value and out_proj; state dicts load from and into the layer of the ladder.

    Keyword-only:
        causal: hide the future (default).
        num_kv_heads: fewer key/value heads than query heads: grouped-query attention; 1 is multi-query.
        window: see only the last `window` keys, oneself included (without causal: to both sides).
        rotary: turn queries and keys by position; True, a base such as 500_000.0, or a `Rotary`.
        alibi: lower scores with distance.
        qk_norm: RMS-normalise queries and keys head by head.
        out_bias: a bias in out_proj (default).
        scale: what scores are multiplied by; 1/√head_dim unless given.
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        context_length: int | None,
        dropout: float,
        num_heads: int,
        qkv_bias: bool = False,
        *,
        causal: bool = True,
        num_kv_heads: int | None = None,
        window: int | None = None,
        rotary: bool | float | Rotary | None = False,
        alibi: bool = False,
        qk_norm: bool = False,
        out_bias: bool = True,
        scale: float | None = None,
    ) -> None:
        super().__init__()
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        check_whole(d_in=d_in, d_out=d_out, num_heads=num_heads, num_kv_heads=num_kv_heads)
        if context_length is not None:
            check_whole(context_length=context_length)
        check_dropout(dropout)
        check_heads(d_out, num_heads)
        _check_sizes(num_heads, num_kv_heads, d_out // num_heads, scale)
        self.d_in, self.d_out, self.context_length, self.dropout = d_in, d_out, context_length, float(dropout)
        self.num_heads, self.num_kv_heads, self.head_dim = num_heads, num_kv_heads, d_out // num_heads
        self.causal, self.window, self.scale, self.alibi = causal, window, scale, alibi
        self.rotary = _rotary(rotary, self.head_dim, alibi)
        self._mask: Mask = CAUSAL if causal else EVERYTHING
        if window is not None:
            self._mask = self._mask & window_mask(window) if causal else window_mask(window)

        width = self.num_kv_heads * self.head_dim
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, width, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, width, bias=qkv_bias)
        self.out_proj = nn.Linear(d_out, d_out, bias=out_bias)
        self.q_norm = nn.RMSNorm(self.head_dim, eps=1e-6) if qk_norm else None
        self.k_norm = nn.RMSNorm(self.head_dim, eps=1e-6) if qk_norm else None
        self.lay_side_by_side()

    def forward(
        self,
        x: Float[Tensor, "B T d_in"],
        context: Float[Tensor, "B S d_in"] | None = None,
        *,
        mask: Mask | Tensor | Sequence[int] | None = None,
        cache: Slot | None = None,
        positions: Int[Tensor, "..."] | None = None,
        return_weights: bool = False,
    ) -> Float[Tensor, "B T d_out"] | tuple[Float[Tensor, "B T d_out"], Float[Tensor, "B H T S"]]:
        """Attend within x, or from x to `context`.

        mask: a rule from regard.attention.masks, a bool tensor (True = may attend) or key lengths; added to the layer's own.
        cache: `cache[i]` of a regard.Cache; the caller advances the cache afterwards.
        positions: (T,) or (B, T), for rotary; they count on from the cache unless given.
        return_weights: also hand back the weights (B, H, T, S), before dropout. That takes T × S of memory.
        """
        self._check(x, context, cache, positions)
        dtype = x.dtype
        slow = dtype in SLOW_ON_CPU and x.device.type == "cpu"
        if slow:  # 16-bit weights and results, float32 in between
            x, context = x.float(), None if context is None else context.float()
        q, k, v = self._project(step("x", x, "input"), context)
        if self.q_norm is not None and self.k_norm is not None:
            q = step("normed", _norm(self.q_norm, q).to(v.dtype), "q_norm(queries)", "lengths are evened out")
            k = step("normed keys", _norm(self.k_norm, k).to(v.dtype), "k_norm(keys)", "lengths are evened out")
        if self.rotary is not None:
            if positions is None:
                start = 0 if cache is None else cache.length
                positions = torch.arange(start, start + x.shape[1], device=x.device)
            _check_positions(positions, x)
            q, k = self.rotary.turn(q, k, positions)
            step("turned", q, "rotary(queries, keys)", "position becomes an angle")
        if cache is not None:
            k, v = cache.write(k, v)
            q = q.to(k.dtype)
        rule = self._mask if mask is None else self._mask & as_mask(mask)
        slopes = alibi_slopes(self.num_heads, x.device) if self.alibi else None
        p = self.dropout if self.training else 0.0
        weights = None
        if return_weights:
            heads, weights = attend_in_steps(q, k, v, mask=rule, scale=self.scale, dropout=p, alibi=slopes)
        else:
            heads = attend(q, k, v, mask=rule, scale=self.scale, dropout=p, alibi=slopes)
        if slow:
            heads = heads.to(x.dtype)
        heads = step("back", heads.transpose(1, 2), "transpose(1, 2)")  # (B, T, H, D)
        concat = step("concat", heads.flatten(2), "view({shape})")  # (B, T, d_out)
        out = step("out", _linear(self.out_proj, concat), "out_proj(concat)")
        if slow:
            out, weights = out.to(dtype), None if weights is None else weights.to(dtype)
        return out if weights is None else (out, weights)

    def _project(self, x: Tensor, context: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, (B, heads, T, head_dim) each."""
        H, Hkv, D = self.num_heads, self.num_kv_heads, self.head_dim
        joined = self.as_one(x) if context is None and not tracing() else None
        if joined is not None and torch.compiler.is_compiling():
            # Along the last axis: a graph puts the gradients together again, and that way in a third of the time.
            parts = joined.split_with_sizes((H * D, Hkv * D, Hkv * D), -1)
            q, k, v = (t.unflatten(-1, (-1, D)).transpose(1, 2) for t in parts)
            return q, k, v
        if joined is not None:
            q, k, v = joined.view(x.shape[0], x.shape[1], H + 2 * Hkv, D).split_with_sizes((H, Hkv, Hkv), 2)
            return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        source = x if context is None else step("context x", context, "context")
        name = "x" if context is None else "context x"
        q = step("queries", _linear(self.W_query, x), "W_query(x)")
        k = step("keys", _linear(self.W_key, source), f"W_key({name})")
        v = step("values", _linear(self.W_value, source), f"W_value({name})")
        q = step("split", q.unflatten(-1, (H, D)), "view({shape})", f"{H} heads of {D}")
        k = step("split keys", k.unflatten(-1, (Hkv, D)), "view({shape})", f"{Hkv} heads of {D}")
        v = step("split values", v.unflatten(-1, (Hkv, D)), "view({shape})", f"{Hkv} heads of {D}")
        q = step("transpose", q.transpose(1, 2), "transpose(1, 2)")
        k = step("transpose keys", k.transpose(1, 2), "transpose(1, 2)", "heads side by side")
        v = step("transpose values", v.transpose(1, 2), "transpose(1, 2)", "heads side by side")
        return q, k, v

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        stored = state_dict.pop(prefix + "mask", None)  # the textbook layer keeps a T × T buffer; we need none
        if stored is not None and not self.causal:
            args[-1].append(
                f"{prefix}mask is a causal mask, but this layer was built with causal=False; use causal=True"
            )
        elif stored is not None and not stored.is_meta and not _hides_the_future(stored):
            args[-1].append(f"{prefix}mask hides something else than the future; pass it as mask= in forward instead")
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _check(self, x: Tensor, context: Tensor | None, cache: Slot | None, positions: Tensor | None) -> None:
        check_width(x, self.d_in)
        query = self._modules["W_query"]
        weight = query._parameters.get("weight") if type(query) is nn.Linear else None
        if weight is not None and weight.dtype is not x.dtype and not torch.is_autocast_enabled(x.device.type):
            raise ValueError(
                f"x is {_named(x.dtype)} but this layer's weights are {_named(weight.dtype)}; "
                f"use x.to({weight.dtype}), layer.to({x.dtype}), or torch.autocast"
            )
        if positions is not None and self.rotary is None:
            raise ValueError(
                "positions are for rotary, and this layer has none; leave them out, or build it with rotary=True"
            )
        if self.context_length is not None:
            check_length(x.shape[1] + (0 if cache is None else cache.length), self.context_length)
        if context is None:
            return
        if context.dim() != 3 or context.shape[0] != x.shape[0] or context.shape[2] != self.d_in:
            raise ValueError(
                f"context has shape {tuple(context.shape)} but must be (B={x.shape[0]}, S, d_in={self.d_in}); "
                "project it to the layer's width first"
            )
        wrong = [n for n in ("causal", "window", "rotary", "alibi") if getattr(self, n) not in (None, False)]
        if wrong:
            raise ValueError(
                f"context is another sequence, where {' and '.join(wrong)} means nothing; "
                f"build a layer for cross-attention with {', '.join(f'{n}=False' if n != 'window' else 'window=None' for n in wrong)}"
            )
        if cache is not None:
            raise ValueError("a cache holds keys of x, not of context; pass one or the other")

    def extra_repr(self) -> str:
        """What the constructor was told, and the parameter count."""
        told = [f"d_in={self.d_in}, d_out={self.d_out}, context_length={self.context_length}, dropout={self.dropout}"]
        told.append(f"num_heads={self.num_heads}")
        told += [f"num_kv_heads={self.num_kv_heads}"] * (self.num_kv_heads != self.num_heads)
        told += ["causal=False"] * (not self.causal)
        told += [f"{n}={getattr(self, n)}" for n in ("window", "rotary", "scale") if getattr(self, n) is not None]
        told += ["alibi=True"] * self.alibi
        return ", ".join([*told, f"parameters={sum(p.numel() for p in self.parameters()):,}"])


def _linear(module: nn.Module, x: Tensor) -> Tensor:
    """module(x); in float32 where x is float32 and the weights are a 16-bit type that this CPU is slow at."""
    if (
        x.dtype is torch.float32
        and isinstance(module, nn.Linear)
        and module.weight.dtype in SLOW_ON_CPU
        and plain(module)
    ):
        return F.linear(x, module.weight.float(), None if module.bias is None else module.bias.float())
    found: Tensor = module(x)
    return found


def _norm(module: nn.RMSNorm, t: Tensor) -> Tensor:
    """module(t), in the wider of the two dtypes where they differ (autocast, or a CPU slow at 16 bits)."""
    wide = torch.promote_types(t.dtype, module.weight.dtype)
    if module.weight.dtype is not wide:
        return F.rms_norm(t, module.normalized_shape, module.weight.to(wide), module.eps)
    found: Tensor = module(t.to(wide))
    return found


def _hides_the_future(mask: Tensor) -> bool:
    hidden = mask != 0
    return mask.dim() == 2 and bool(hidden.equal(torch.ones_like(hidden).triu(1)))


def _named(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _check_positions(positions: Tensor, x: Tensor) -> None:
    B, T = x.shape[:2]
    if positions.is_floating_point() or positions.dtype is torch.bool:
        raise ValueError(f"positions must be whole numbers, but are {_named(positions.dtype)}; try positions.long()")
    if tuple(positions.shape) not in ((T,), (B, T), (1, T)):
        raise ValueError(
            f"positions has shape {tuple(positions.shape)} but x has B={B}, T={T}; give ({T},) or ({B}, {T})"
        )


def _rotary(rotary: bool | float | Rotary | None, head_dim: int, alibi: bool) -> Rotary | None:
    if rotary is False or rotary is None:
        return None
    if alibi:
        raise ValueError("rotary and alibi are two answers to one question, where a token stands; choose one")
    if head_dim % 2:
        raise ValueError(f"rotary turns channels in pairs, but head_dim ({head_dim}) is odd; choose an even head_dim")
    return rotary if isinstance(rotary, Rotary) else Rotary() if rotary is True else Rotary(base=float(rotary))


def _check_sizes(num_heads: int, num_kv_heads: int, head_dim: int, scale: float | None) -> None:
    if num_heads % num_kv_heads:
        fits = ", ".join(str(n) for n in range(1, num_heads + 1) if num_heads % n == 0)
        raise ValueError(
            f"num_heads ({num_heads}) must be divisible by num_kv_heads ({num_kv_heads}); try one of {fits}"
        )
    if scale is not None and not (math.isfinite(scale) and scale > 0):
        raise ValueError(f"scale ({scale}) must be above 0; 1/√head_dim = {head_dim**-0.5:.4g} is usual")

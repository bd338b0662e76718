"""MultiHeadAttention: the layer to ship. It computes what ladder/multi_head.py shows, at fused speed.

Adds to that rung: no mask in memory, cross-attention, grouped queries, windows, positions and a cache.
Project → split → transpose → attend → concat → project; attend.py holds the formula.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import layer_arguments as arguments
from regard.attention.attend import attend, attend_in_steps
from regard.attention.cache import Slot
from regard.attention.masks import Mask, as_mask
from regard.attention.positions import Rotary, alibi_slopes
from regard.attention.projections import in_float32_if_emulated, linear, normalize, project_qkv
from regard.steps import step
from regard.support.arguments import explain_wrong_call
from regard.support.super_init import explain_in_subclasses


@explain_in_subclasses
class MultiHeadAttention(nn.Module):
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

    @explain_wrong_call
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
        arguments.check_sizes(d_in, d_out, context_length, dropout, num_heads, num_kv_heads, scale)
        self.d_in, self.d_out, self.context_length, self.dropout = d_in, d_out, context_length, float(dropout)
        self.num_heads, self.num_kv_heads, self.head_dim = num_heads, num_kv_heads, d_out // num_heads
        self.causal, self.window, self.scale, self.alibi = causal, window, scale, alibi
        self.rotary = arguments.as_rotary(rotary, self.head_dim, alibi)
        self.rule = arguments.layer_mask(causal, window)
        kv_width = num_kv_heads * self.head_dim
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, kv_width, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, kv_width, bias=qkv_bias)
        self.out_proj = nn.Linear(d_out, d_out, bias=out_bias)
        self.q_norm = nn.RMSNorm(self.head_dim, eps=1e-6) if qk_norm else None
        self.k_norm = nn.RMSNorm(self.head_dim, eps=1e-6) if qk_norm else None

    @in_float32_if_emulated
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

        mask: regard.causal() and the like, a bool tensor (True = may attend) or key lengths; the layer's own applies too.
        cache: `cache[i]` of a regard.Cache; the caller advances the cache afterwards.
        positions: (T,) or (B, T), for rotary; they count on from the cache unless given.
        return_weights: also return the weights (B, H, T, S), before dropout, which are then kept in memory.
        """
        rule = self.rule if mask is None else self.rule & as_mask(mask)
        arguments.check_inputs(self, x, context, rule, cache, positions)
        H, Hkv, D = self.num_heads, self.num_kv_heads, self.head_dim

        q, k, v = project_qkv(self.W_query, self.W_key, self.W_value, step("x", x, "input"), context)
        q = step("split", q.view(*q.shape[:2], H, D))  # (B, T, H, D)
        k = step("split keys", k.view(*k.shape[:2], Hkv, D))
        v = step("split values", v.view(*v.shape[:2], Hkv, D))
        q = step("transpose", q.transpose(1, 2))  # (B, H, T, D)
        k = step("transpose keys", k.transpose(1, 2))
        v = step("transpose values", v.transpose(1, 2))

        if self.q_norm is not None and self.k_norm is not None:
            q = step("normed", normalize(self.q_norm, q), "q_norm(queries)", "each vector normalized")
            k = step("normed keys", normalize(self.k_norm, k), "k_norm(keys)", "each vector normalized")
        if self.rotary is not None:
            if positions is None:
                start = 0 if cache is None else cache.length
                positions = torch.arange(start, start + x.shape[1], device=x.device)
            q, k = self.rotary.rotate(q, k, positions)
            step("turned", q, "rotary(queries)", "position becomes an angle")
            step("turned keys", k, "rotary(keys)", "position becomes an angle")
        if cache is not None:
            k, v = cache.write(k, v)  # with all earlier keys and values, in the cache's dtype
            q = q.to(k.dtype)

        slopes = alibi_slopes(H, x.device, torch.promote_types(q.dtype, torch.float32)) if self.alibi else None
        dropout = self.dropout if self.training else 0.0
        weights = None
        if return_weights:
            heads, weights = attend_in_steps(q, k, v, mask=rule, scale=self.scale, dropout=dropout, alibi=slopes)
        else:
            heads = attend(q, k, v, mask=rule, scale=self.scale, dropout=dropout, alibi=slopes)

        if cache is not None:
            heads = heads.to(x.dtype)
        heads = step("back", heads.transpose(1, 2))  # (B, T, H, D)
        concat = step("concat", heads.flatten(2))  # (B, T, d_out)
        out = step("out", linear(self.out_proj, concat), "out_proj(concat)")
        return out if weights is None else (out, weights)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        if error := arguments.drop_textbook_mask(state_dict, prefix, self.causal):
            args[-1].append(error)  # torch's list of error messages
        super()._load_from_state_dict(state_dict, prefix, *args)

    def extra_repr(self) -> str:
        """Sizes, options that differ from their default, and the parameter count."""
        defaults = {"d_in": 0, "d_out": 0, "context_length": 0, "dropout": None, "num_heads": 0}  # always shown
        defaults |= {"num_kv_heads": self.num_heads, "causal": True, "window": None, "rotary": None, "scale": None}
        defaults |= {"alibi": False}
        shown = [f"{name}={getattr(self, name)}" for name in defaults if getattr(self, name) != defaults[name]]
        return ", ".join([*shown, f"parameters={sum(p.numel() for p in self.parameters()):,}"])

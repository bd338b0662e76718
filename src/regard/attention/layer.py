"""MultiHeadAttention: the layer to ship. It computes what ladder/multi_head.py shows, at fused speed.

Adds to that rung: no mask in memory, cross-attention, grouped queries, windows, positions and a cache.
Project → split → transpose → attend → concat → project; formula.py holds the formula.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import layer_arguments as arguments
from regard.attention.attend import attend
from regard.attention.cache import Slot, remember
from regard.attention.formula import attend_in_steps
from regard.attention.masks import Mask
from regard.attention.positions import Rotary, alibi_slopes, rotate_heads
from regard.attention.projections import normalize_heads, project_out, project_qkv
from regard.steps import step
from regard.support.arguments import renamed
from regard.support.super_init import explain_wrong_use


@explain_wrong_use
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
        arguments.check_layer_sizes(d_in, d_out, context_length, dropout, num_heads, num_kv_heads, scale)
        self.d_in, self.d_out, self.context_length, self.dropout = d_in, d_out, context_length, float(dropout)
        self.num_heads, self.num_kv_heads, self.head_dim = num_heads, num_kv_heads, d_out // num_heads
        self.causal, self.window, self.scale, self.alibi = causal, window, scale, alibi
        self.rotary = arguments.as_rotary(rotary, self.head_dim, alibi)
        self.mask = arguments.layer_mask(causal, window)
        kv_width = num_kv_heads * self.head_dim
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, kv_width, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, kv_width, bias=qkv_bias)
        self.out_proj = nn.Linear(d_out, d_out, bias=out_bias)
        self.q_norm = nn.RMSNorm(self.head_dim, eps=1e-6) if qk_norm else None
        self.k_norm = nn.RMSNorm(self.head_dim, eps=1e-6) if qk_norm else None
        self.register_load_state_dict_pre_hook(arguments.drop_textbook_mask)  # type: ignore[no-untyped-call]

    if TYPE_CHECKING:  # what nn.Module calls forward with, and returns, is Any

        @overload
        def __call__(
            self, x: Tensor, source: Tensor | None = None, *, return_weights: Literal[False] = False, **options: Any
        ) -> Tensor: ...
        @overload
        def __call__(
            self, x: Tensor, source: Tensor | None = None, *, return_weights: Literal[True], **options: Any
        ) -> tuple[Tensor, Tensor]: ...
        @overload
        def __call__(self, x: Tensor, source: Tensor | None = None, *, return_weights: bool, **options: Any) -> Any: ...
        def __call__(self, *args: Any, **options: Any) -> Any: ...

    @renamed(context="source")  # the old keyword works until 0.3
    def forward(
        self,
        x: Float[Tensor, "B T d_in"],
        source: Float[Tensor, "B S d_in"] | None = None,
        *,
        mask: Mask | Tensor | Sequence[int] | None = None,
        cache: Slot | None = None,
        positions: Int[Tensor, "..."] | None = None,
        return_weights: bool = False,
    ) -> Float[Tensor, "B T d_out"] | tuple[Float[Tensor, "B T d_out"], Float[Tensor, "B H T S"]]:
        """Attend within x, or from x to `source` (with causal=False); return_weights: the weights, before dropout, too.

        mask: regard.causal() and the like, a bool tensor (True = may attend) or key lengths; with the layer's own.
        cache: `cache[i]` of a regard.Cache; the caller advances the cache afterwards.
        positions: (T,) or (B, T), for rotary; they count on from the cache unless given.
        """
        mask = arguments.check_and_join_masks(self, x, source, mask, cache, positions)
        H, Hkv, D = self.num_heads, self.num_kv_heads, self.head_dim

        q, k, v = project_qkv(self.W_query, self.W_key, self.W_value, x, source)  # (B, T, H·D), (B, S, Hkv·D) twice
        q = step("split", q.view(*q.shape[:2], H, D))  # (B, T, H, D)
        k = step("split keys", k.view(*k.shape[:2], Hkv, D))
        v = step("split values", v.view(*v.shape[:2], Hkv, D))
        q = step("transpose", q.transpose(1, 2))  # (B, H, T, D)
        k = step("transpose keys", k.transpose(1, 2))
        v = step("transpose values", v.transpose(1, 2))
        q, k = normalize_heads(self.q_norm, self.k_norm, q, k)
        q, k = rotate_heads(self.rotary, q, k, positions, start=0 if cache is None else cache.length)
        q, k, v = remember(cache, q, k, v)  # k and v with all earlier ones, q in their dtype
        how: Any = {"mask": mask, "scale": self.scale, "dropout": self.dropout * self.training, "alibi": self.slopes(q)}
        context, weights = attend_in_steps(q, k, v, **how) if return_weights else (attend(q, k, v, **how), None)
        back = step("back", context.transpose(1, 2))  # (B, T, H, D)
        concat = step("concat", back.flatten(2))  # (B, T, d_out)
        out = project_out(self.out_proj, concat, x)  # (B, T, d_out)
        return out if weights is None else (out, weights.to(out.dtype))

    def slopes(self, q: Float[Tensor, "B H T D"]) -> Float[Tensor, "H"] | None:
        """ALiBi's slope of each head, for these queries; None in a layer without it."""
        if not self.alibi:
            return None
        return alibi_slopes(self.num_heads, q.device, torch.promote_types(q.dtype, torch.float32))

    def extra_repr(self) -> str:
        """Sizes, options that differ from their default, and the parameter count."""
        return arguments.describe_layer(self)

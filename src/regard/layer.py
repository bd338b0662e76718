"""MultiHeadAttention: the layer to ship. It computes what ladder/multi_head.py shows, at fused speed.

Adds to that rung: no mask in memory, cross-attention, grouped queries, windows, positions and a cache.
Project → split → transpose → attend → concat → project; attend.py holds the formula.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeGuard

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.modules import module as _everywhere
from torch.utils.checkpoint import checkpoint
from torch.utils.dlpack import from_dlpack

from regard.attend import attend, attend_in_steps
from regard.cache import Slot
from regard.checks import check_dropout, check_heads, check_length, check_whole, check_width
from regard.masks import CAUSAL, EVERYTHING, Mask, as_mask
from regard.masks import window as window_mask
from regard.positions import Rotary, alibi_slopes
from regard.steps import step, tracing


def _slow_on_cpu() -> frozenset[torch.dtype]:
    """The 16-bit types that this CPU has no arithmetic for: their matrix product is many times slower than float32's."""
    if not torch.backends.mkldnn.is_available():  # as on Apple's chips, where nothing tells
        return frozenset()
    known = {torch.bfloat16: "_is_mkldnn_bf16_supported", torch.float16: "_is_mkldnn_fp16_supported"}
    return frozenset(dtype for dtype, name in known.items() if not getattr(torch.ops.mkldnn, name)())


_SLOW_ON_CPU = _slow_on_cpu()


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

    _rooms: dict[str, Tensor]  # memory of the three weights, and of the three biases, one behind the other

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
        self._rooms = {}
        self._lay_side_by_side()
        self.register_load_state_dict_post_hook(_lay_again)  # type: ignore[no-untyped-call]

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

        mask: a rule from regard.masks, a bool tensor (True = may attend) or key lengths; added to the layer's own.
        cache: `cache[i]` of a regard.Cache; the caller advances the cache afterwards.
        positions: (T,) or (B, T), for rotary; they count on from the cache unless given.
        return_weights: also hand back the weights (B, H, T, S), before dropout. That takes T × S of memory.
        """
        self._check(x, context, cache, positions)
        dtype = x.dtype
        slow = dtype in _SLOW_ON_CPU and x.device.type == "cpu"
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
        packed = self._packed() if context is None and not tracing() else None
        if packed is not None:
            weight, bias = packed
            joined = F.linear(x, weight, bias).view(x.shape[0], x.shape[1], H + 2 * Hkv, D)
            q, k, v = joined.split_with_sizes((H, Hkv, Hkv), 2)
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

    def _packed(self) -> tuple[Tensor, Tensor | None] | None:
        """One weight for all three projections, or None where they must run one by one.

        One product is up to 5% of the layer faster than three. The three parameters lie side by side in one room,
        so the one weight is that room, not a copy; where they have been moved out (or a hook, an adapter or a
        transform stands in their place), the answer is None and nothing is assumed.
        """
        # Read straight from the dicts: this runs on every call, and nn.Module's attributes are slow to find.
        children = self._modules
        query, key, value = children["W_query"], children["W_key"], children["W_value"]
        if not (_plain(query) and _plain(key) and _plain(value)):
            return None
        linears = (query, key, value)
        weights: list[Any] = [m._parameters.get("weight") for m in linears]
        biases: list[Any] = [m.bias for m in linears if m.bias is not None]
        if any(type(w) is not nn.Parameter for w in weights) or len(biases) not in (0, 3):
            return None
        if weights[0].dtype in _SLOW_ON_CPU and weights[0].device.type == "cpu":
            return None
        if torch.compiler.is_compiling():  # a graph may not know where parameters lie: it copies them together
            return _cat(weights), torch.cat(biases) if biases else None
        room = self._rooms.get("weight")
        if room is None or torch._C._are_functorch_transforms_active():
            return None
        if not _in_order(weights, room):
            self._rooms.clear()
            return None
        if torch.is_grad_enabled():
            weight: Tensor = _ViewAll.apply(room, *weights)  # type: ignore[no-untyped-call]
            return weight, torch.cat(biases) if biases else None
        if not biases:
            return room, None
        bias = self._rooms.get("bias")
        return room, bias if bias is not None and _in_order(biases, bias) else torch.cat(biases)

    def _lay_side_by_side(self) -> None:
        """Move the projections' weights into one room, and their biases; they stay parameters with a storage each."""
        before, self._rooms = self._rooms, {}
        for kind in ("weight", "bias"):
            three: list[Any] = [getattr(m, kind, None) for m in (self.W_query, self.W_key, self.W_value)]
            if any(type(p) is not nn.Parameter for p in three):
                return
            if kind in before and _in_order(three, before[kind]):
                self._rooms[kind] = before[kind]
                continue
            if not _may_move(three):
                return
            with torch.no_grad():
                room = self._rooms[kind] = torch.cat([p.data for p in three])
                for p, part in zip(three, room.split([p.shape[0] for p in three]), strict=True):
                    # By way of DLPack each gets a storage of its own, so that saving one does not save all.
                    p.data = from_dlpack(part)

    def _apply(self, fn: Any, recurse: bool = True) -> MultiHeadAttention:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._lay_side_by_side()
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_rooms": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._lay_side_by_side()

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
        and module.weight.dtype in _SLOW_ON_CPU
        and _plain(module)
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


def _plain(module: nn.Module | None) -> TypeGuard[nn.Linear]:
    """Is this an nn.Linear that nobody listens to? Else it must really be called."""
    return type(module) is nn.Linear and not (
        "forward" in module.__dict__  # replaced on the instance, as some libraries do
        or module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or _everywhere._global_forward_hooks
        or _everywhere._global_forward_pre_hooks
        or _everywhere._global_backward_hooks
        or _everywhere._global_backward_pre_hooks
    )


def _may_move(parameters: list[Tensor]) -> bool:
    """May these get other memory? Not if somebody shares it, nor where DLPack may not be trusted with a slice."""
    first = parameters[0]
    return (
        first.device.type in ("cpu", "cuda")
        and not torch.is_inference_mode_enabled()
        and len({(p.dtype, p.device, p.shape[1:]) for p in parameters}) == 1
        and all(p.untyped_storage().nbytes() == p.nbytes for p in parameters)
        and not (first.device.type == "cpu" and any(p.is_shared() for p in parameters))
    )


def _lay_again(layer: nn.Module, _: Any) -> None:
    """After load_state_dict(assign=True) the weights are elsewhere."""
    assert isinstance(layer, MultiHeadAttention)
    layer._lay_side_by_side()


def _hides_the_future(mask: Tensor) -> bool:
    hidden = mask != 0
    return mask.dim() == 2 and bool(hidden.equal(torch.ones_like(hidden).triu(1)))


def _in_order(parameters: list[Tensor], room: Tensor) -> bool:
    """Are these still the memory of the room, one behind the other? The room keeps it from being used for others."""
    place = room.data_ptr()
    for p in parameters:
        if type(p) is not nn.Parameter or p.data_ptr() != place or p.dtype is not room.dtype or not p.is_contiguous():
            return False
        place += p.nbytes
    return place == room.data_ptr() + room.nbytes


def _cat(weights: list[Tensor]) -> Tensor:
    """torch.cat for compiled graphs: made again in backward, where it would otherwise be kept in memory until then."""
    if torch.is_grad_enabled() and not torch.compiler.is_exporting():
        found: Tensor = checkpoint(lambda *parts: torch.cat(parts), *weights, use_reentrant=False)
        return found
    return torch.cat(weights)


class _ViewAll(torch.autograd.Function):
    """torch.cat of weights that lie one behind the other in a room, without the copy."""

    @staticmethod
    def forward(ctx: Any, room: Tensor, *weights: Tensor) -> Tensor:
        ctx.save_for_backward(*weights)  # so that torch notices a weight changed before backward
        return room.detach()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return None, *grads[0].split_with_sizes([w.shape[0] for w in ctx.saved_tensors])


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

"""scaled_dot_product_attention (SDPA) as torch calls it: its arguments as a call, and the LSE where the kernel has it.

The kernel runs as it would unwatched: nothing here computes attention.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from regard.attention.call import QK, Call
from regard.attention.masks import CAUSAL, EVERYTHING, Dense, Mask, Padding, to_four_axes
from regard.heads.calls.axis_roles import AxisPlan, AxisRoles, roles_of_factors
from regard.heads.calls.basis import FROM_CALL, Basis
from regard.heads.calls.call import UNKNOWN_ORIGIN, Args, Kwargs, Origin, WatchedCall
from regard.heads.calls.head_axis import HeadAxis
from regard.heads.calls.score_origin import Memory
from regard.heads.inputs.positions import OF_FEATURES, are_features
from regard.heads.intercept.paths import handles

if TYPE_CHECKING:
    from regard.heads.intercept.interceptor import Interceptor

aten = torch.ops.aten
_HEADS_SECOND = HeadAxis()
# Kernels that return the LSE, as their second result; for some, only if the argument at this index is True.
KERNELS: dict[Any, int | None] = {
    aten._scaled_dot_product_flash_attention_for_cpu.default: None,
    aten._scaled_dot_product_flash_attention.default: None,
    aten._scaled_dot_product_efficient_attention.default: 4,
    aten._scaled_dot_product_cudnn_attention.default: 4,
}


@dataclass(frozen=True, repr=False, eq=False)
class CausalFromFirstKey(Mask):
    """Causal with query 0 at key 0, like SDPA's is_causal; in causal() the last query is at the last key."""

    def tile(self, rows: Int[Tensor, "T"], cols: Int[Tensor, "S"], shift: int) -> Bool[Tensor, "..."]:
        return cols <= rows[:, None]

    @property
    def kind(self) -> str:
        return "causal from the start"


class LseCapture(TorchDispatchMode):
    """Keeps the LSE that an SDPA kernel computes anyway."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.lse: Tensor | None = None

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # True would import dynamo, which takes seconds

    def __torch_dispatch__(self, func: Any, types: Any, args: Args = (), kwargs: Kwargs | None = None) -> Any:
        if func not in KERNELS:
            return func(*args, **(kwargs or {}))
        flag = KERNELS[func]
        if flag is not None and len(args) > flag:
            args = (*args[:flag], True, *args[flag + 1 :])
        results = func(*args, **(kwargs or {}))
        self.lse = results[1]
        return results


class SdpaArguments(NamedTuple):
    """The arguments of SDPA, by the names and with the defaults that it has."""

    query: Tensor
    key: Tensor
    value: Tensor
    attn_mask: Tensor | None = None
    dropout_p: float = 0.0
    is_causal: bool = False
    scale: float | None = None
    enable_gqa: bool = False


def run_with_lse(function: Callable[..., Any], args: Args, kwargs: Kwargs) -> tuple[Any, Tensor | None]:
    """The output of SDPA, and the LSE where its kernel computes one."""
    with LseCapture() as capture:
        out = function(*args, **kwargs)
    return out, capture.lse


def sdpa_call(args: Args, kwargs: Kwargs, lse: Tensor | None, axis: HeadAxis, live: bool = False) -> WatchedCall:
    """The arguments of SDPA as a call; live: with values and gradients.

    (T, D) is one head; for (N, T, D), and for more than four axes, `axis` says where the heads are. Keys that is_causal
    hides from every query are left out, so that the last query is at the last key.
    """
    query, key, value, attn_mask, dropout, is_causal, scale, _ = SdpaArguments(*args, **kwargs)
    if live and query.is_nested:
        raise ValueError("its texts are nested tensors, which cannot be cut; pad them to one length")
    if query.dim() < 2 or key.dim() < 2:
        raise ValueError(f"queries of shape {tuple(query.shape)} and keys of shape {tuple(key.shape)}")
    if attn_mask is not None:
        is_causal, attn_mask = _without_causal_bias(attn_mask, is_causal)
    if not live:
        query, key, attn_mask = query.detach(), key.detach(), _maybe(Tensor.detach, attn_mask)
    (q, q_lengths), (k, k_lengths) = _padded(query), _padded(key)
    q, k = _as_autocast(q), _as_autocast(k)
    v = align_axes(q, _as_autocast(value), None, axis)[1] if live else None
    q, k, attn_mask = align_axes(q, k, attn_mask, axis)
    bias = None
    if attn_mask is not None and attn_mask.dtype is not torch.bool and not is_causal:
        bias, attn_mask = _as_autocast(attn_mask), None
    T, S = q.shape[2], k.shape[2]
    mask = _mask_of(attn_mask, is_causal, k_lengths, q.shape[0], T, S)
    if is_causal and S > T:
        k, v = k[:, :, :T], _maybe(lambda t: t[:, :, :T], v)
    scale = q.shape[-1] ** -0.5 if scale is None else float(scale)
    attention = QK(q=q, k=k, mask=mask, scale=scale, bias=bias)
    if v is not None:
        attention = Call(q=q, k=k, v=v, mask=mask, scale=scale, bias=bias, dropout=dropout)
    return WatchedCall(
        attention, _origin(q_lengths, T, axis), _exact_lse(None if axis.reorders else lse, q, mask, bias)
    )


def _origin(lengths: Tensor | None, T: int, axis: HeadAxis) -> Origin:
    """What is known of a call beside its tensors: which queries are real, and how the heads' axis was found."""
    if lengths is None and axis.fact is FROM_CALL and axis.part is None:
        return UNKNOWN_ORIGIN
    real = _maybe(lambda t: torch.arange(T, device=t.device) < t[:, None], lengths)
    return Origin(real=real, part=axis.part, basis=Basis(heads=axis.fact))


def _maybe(change: Callable[[Tensor], Tensor], t: Tensor | None) -> Tensor | None:
    return None if t is None else change(t)


def _by_plan(q: Tensor, k: Tensor, mask: Tensor | None, axis: HeadAxis) -> tuple[Tensor, Tensor, Tensor | None]:
    lead = torch.broadcast_shapes(q.shape[:-2], k.shape[:-2])
    q, k = (axis.apply(t.expand(*lead, -1, -1)) for t in (q, k))
    if mask is None or mask.shape[:-2].numel() == 1:
        return q, k, _maybe(lambda t: t.reshape(1, 1, *t.shape[-2:]), mask)
    return q, k, axis.apply(mask.expand(*lead, q.shape[2], k.shape[2]))


def align_axes(q: Tensor, k: Tensor, mask: Tensor | None, axis: HeadAxis) -> tuple[Tensor, Tensor, Tensor | None]:
    """q, k and mask with the axes (B, H, …), broadcast to each other as SDPA does."""
    if axis.plan is not None:
        return _by_plan(q, k, mask, axis)
    if q.dim() == k.dim() == 4 and axis.split is not None:
        whole = _maybe(lambda t: to_four_axes(t).expand(q.shape[0], q.shape[1], -1, -1), mask)
        return axis.apply(q), axis.apply(k), _maybe(axis.apply, whole)
    if q.dim() == k.dim() == 4 and q.shape[0] == k.shape[0] and q.shape[1] >= k.shape[1]:
        return q, k, _maybe(to_four_axes, mask)
    axes = max(q.dim(), k.dim())
    if axes == 3:  # texts and heads, or texts of one head
        N = max(t.shape[0] for t in (q, k) if t.dim() == 3)
        q, k = (axis.apply(t.expand(N, -1, -1)) for t in (q, k))
        return q, k, None if mask is None else to_four_axes(mask) if mask.shape[:-2].numel() == 1 else axis.apply(mask)
    axes = max(axes, 4)

    def with_heads_last(t: Tensor) -> Tensor:
        """(…, H, x, y)."""
        t = t.reshape((1,) * (axes - t.dim()) + tuple(t.shape))
        return t.movedim(axis.axis, -3) if axes > 4 else t

    q, k, mask = with_heads_last(q), with_heads_last(k), _maybe(with_heads_last, mask)
    if axis.grouped:
        groups = torch.broadcast_shapes(q.shape[:-2], k.shape[:-2])

        def joined(t: Tensor) -> Tensor:
            return t.expand(*groups, -1, -1).flatten(-4, -3)

        q, k, mask = joined(q), joined(k), _maybe(joined, mask)
    # All axes before the heads become one.
    lead = torch.broadcast_shapes(q.shape[:-3], k.shape[:-3])
    H = max(q.shape[-3], k.shape[-3])  # one query head for several key heads is repeated; the reverse need not be
    if mask is not None and q.dim() > 4:
        mask = mask.expand(*lead, -1, -1, -1).flatten(0, -4)
    return q.expand(*lead, H, -1, -1).flatten(0, -4), k.expand(*lead, -1, -1, -1).flatten(0, -4), mask


def _mask_of(allowed: Tensor | None, is_causal: bool, lengths: Tensor | None, B: int, T: int, S: int) -> Mask:
    """allowed: (…, T, S) of four axes. One row for all queries and heads of each text is padding."""
    masks: list[Mask] = [] if lengths is None else [Padding(lengths)]
    if is_causal:
        masks.append(CAUSAL if S >= T else CausalFromFirstKey())
    elif allowed is not None:
        one_row = allowed.shape[3] > 1 and all(allowed.shape[i] == 1 or allowed.stride(i) == 0 for i in (1, 2))
        one_row = one_row and (B == 1 or (allowed.shape[0] > 1 and allowed.stride(0) > 0))
        masks.append(Padding(allowed[:, 0, 0]) if one_row else Dense(allowed))
    return EVERYTHING if not masks else masks[0] if len(masks) == 1 else masks[0] & masks[1]


def _padded(t: Tensor) -> tuple[Tensor, Tensor | None]:
    """Texts of different lengths (a nested tensor) padded to one length, and their lengths."""
    if not t.is_nested:
        return t, None
    lengths = torch.tensor([part.shape[-2] for part in t.unbind()], device=t.device)
    return torch.nested.to_padded_tensor(t.contiguous(), 0.0), lengths


def _without_causal_bias(attn_mask: Tensor, is_causal: bool) -> tuple[bool, Tensor | None]:
    """The causal masks of torch.nn.attention.bias hold no entries: as the flag, or as a tensor where it differs."""
    if type(attn_mask).__name__ != "CausalBias":
        return is_causal, attn_mask
    if attn_mask.variant.name == "UPPER_LEFT":  # type: ignore[attr-defined]
        return True, None
    T, S = attn_mask.seq_len_q, attn_mask.seq_len_kv  # type: ignore[attr-defined]
    return False, CAUSAL.dense(T, S, attn_mask.device)


def _as_autocast(t: Tensor) -> Tensor:
    """As the kernel gets it: autocast casts below the level where we intercept."""
    if t.dtype is torch.float64 or not torch.is_autocast_enabled(t.device.type):
        return t
    return t.to(torch.get_autocast_dtype(t.device.type))


def _exact_lse(lse: Tensor | None, q: Tensor, mask: Mask, bias: Tensor | None) -> Tensor | None:
    """(B, H, T), where the kernel's LSE covers the same scores, precisely: with 16 bits on the CPU it is summed in 16.

    A kernel may append something: cuDNN an axis, the memory-efficient kernel padding of the last block.
    """
    is_16_bit_cpu = q.device.type == "cpu" and q.element_size() == 2
    is_plain = bias is None and (mask is EVERYTHING or mask is CAUSAL)
    if lse is None or not is_plain or is_16_bit_cpu:
        return None
    lse = lse.detach()
    lse = (lse.squeeze(-1) if lse.dim() == 4 else lse)[..., : q.shape[2]]
    return lse.to(torch.promote_types(q.dtype, torch.float32)) if lse.shape == q.shape[:3] else None


def _find_heads(interceptor: Interceptor, query: Tensor, key: Tensor) -> tuple[HeadAxis, str]:
    """Where its heads are, and why its weights are not understood; "" where they are."""
    axis, model = _HEADS_SECOND, interceptor.running[0]
    if query.is_nested:
        return axis, ""
    memory = Memory(tuple(query.shape), query.stride())
    lead = max(query.shape[:-2], key.shape[:-2], key=lambda shape: (len(shape), shape))
    both = memory, Memory(tuple(key.shape), key.stride())
    queries = next((one for one in both if one.heads_axis is not None), memory)  # pooled queries are copies

    def roles() -> AxisRoles | None:
        return roles_of_factors(interceptor.lineage.of(query), interceptor.lineage.of(key))

    axis = interceptor.find_heads((*lead, query.shape[-2], key.shape[-2]), queries, None, roles, by_convention=True)
    if are_features((*query.shape[:-1], key.shape[-2]), memory, model.inputs.given):
        return axis, OF_FEATURES
    mixed = "" if _fits(axis.plan, query) else "its heads and queries are in one axis"
    return axis, axis.unknown or mixed


def _made_of(args: Args, kwargs: Kwargs) -> tuple[Any, ...]:
    """All that its weights depend on."""
    given = SdpaArguments(*args, **kwargs)
    return given.query, given.key, given.attn_mask, given.dropout_p, given.is_causal, given.scale


def _fits(plan: AxisPlan | None, query: Tensor) -> bool:
    """Have the queries an axis of their own, so that keys can be cut alike?"""
    return plan is None or (plan.has_rows_last and plan.sizes[-1] == query.shape[-2])


@handles("scaled_dot_product_attention")
def report_sdpa(interceptor: Interceptor, function: Any, args: Args, kwargs: Kwargs) -> Any:
    if interceptor.is_vmapped():
        return function(*args, **kwargs)
    edits = interceptor.edits()
    query = args[0] if args else kwargs["query"]
    interceptor.weight_uses.check_once(_made_of(args, kwargs), edits)
    if not edits and not any(model.needs_calls or model.may_be_piece(query) for model in interceptor.running):
        for model in interceptor.running:
            model.count()
        return function(*args, **kwargs)
    out, lse = run_with_lse(function, args, kwargs)
    with interceptor.errors_naming_the_module("cut" if edits else "follow"):
        key = args[1] if len(args) > 1 else kwargs["key"]
        axis, unknown = _find_heads(interceptor, query, key)
        if unknown:
            interceptor.refuse(unknown)
            return out
        if (edits or interceptor.needs_contexts) and not axis.keeps_order(query.dim()):
            raise ValueError("its heads are not in the axis before the queries, where they can be reached")
        call = sdpa_call(args, kwargs, lse, axis, live=bool(edits) or interceptor.needs_contexts)
    return interceptor.finish(call, interceptor.edit_of(call, edits), out, axis)

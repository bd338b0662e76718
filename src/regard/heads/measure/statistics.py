"""Measuring: every statistic of attention calls, on a GPU by kernels of our own, elsewhere by torch's operations.

registry.py defines each statistic. Calls of one form, which all layers of most models have, are measured together, as
more texts of one batch: operations cost as much for one call as for ten. They wait until the forward is over, a call of
another form comes, or they are many. Their queries and keys are copies, kept in any case. Long texts do not wait.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attention.call import QK
from regard.attention.masks import CAUSAL, EVERYTHING, Mask
from regard.heads.calls.call import OwnWeights, WatchedCall, changed
from regard.heads.calls.visibility import queries_per_key
from regard.heads.measure import target_keys
from regard.heads.measure.kernels import exact_weights as tiles
from regard.heads.measure.kernels import tile_statistics
from regard.heads.measure.kernels.kernel_mask import KernelMask, mask_for_kernels
from regard.heads.measure.on_demand import BY_HEAD, counted, result_dtype
from regard.heads.measure.registry import BY_NAME, COLUMNS, NEED_TOKENS, ROWS, STORED, TARGETS, Start, Target
from regard.support.torch_threads import limit_threads

WRITTEN_OUT = 1 << 28  # entries of a mask that kernels cannot compute, at a time
MOST_PROGRAMS = 65535  # B · H of one launch
# Weights, and bytes of queries and keys, up to which calls are joined on a GPU: launching takes longer than computing.
JOINED_WEIGHTS, JOINED_BYTES = 1 << 30, 256 * 2**20
_refused: set[tuple[torch.device, int]] = set()  # devices and key sizes that kernels could not be built for
_HAS_TRITON = importlib.util.find_spec("triton") is not None
_AFTERWARDS = frozenset({"lse", *BY_HEAD})  # needs no pass over all statistics


def measure(call: WatchedCall, collect: frozenset[str]) -> dict[str, Tensor]:
    """The collected statistics of one call: {"entropy": (B, H, T), …, "received": (B, H, S), …}.

    Statistics that need token ids (induction, duplicate) are always included where the ids are known.

    >>> from regard.attention.masks import causal
    >>> eye = torch.eye(3).view(1, 1, 3, 3)
    >>> measure(WatchedCall(QK(q=eye, k=eye, scale=100.0, mask=causal())), frozenset({"self"}))
    {'self': tensor([[[1., 1., 1.]]])}
    """
    if call.origin.tokens is not None:
        collect = collect | NEED_TOKENS
    attention = _in_triton(call)
    result = (None if attention is None else _in_one_launch(call, attention, collect)) or _in_tiles(call, collect)
    if "received_mean" in collect:
        queries = queries_per_key(call)
        result["received_mean"] = torch.where(queries > 0, result["received"] / queries.clamp(min=1), torch.nan)
    for name in collect & BY_HEAD.keys():
        tensors = zip(*(BY_HEAD[name](call, result["lse"], head) for head in range(call.sizes[1])), strict=True)
        result |= {stored: torch.stack(one, 1) for stored, one in zip(BY_NAME[name].stored, tensors, strict=True)}
    _correct(call, result)
    return {name: result[name] for name, one in STORED.items() if one.name in collect and name in result}


def _correct(call: WatchedCall, result: dict[str, Tensor]) -> None:
    """0 on targets that a cache has dropped; NaN where a target is padding, or where positions are unknown."""
    if call.origin.dropped is not None:  # what is in the text and not among these keys has weight 0
        names, counts = [name for name in TARGETS if name in result], counted(call, result["lse"])
        dropped = target_keys.dropped_targets(call, [TARGETS[name] for name in names])
        for name, absent in zip(names, dropped, strict=True):
            result[name] = torch.where(absent[:, None] & counts, 0.0, result[name])
    if call.origin.real is not None:  # a text ends where its padding begins
        real = call.origin.real.to(call.device)
        for name in [name for name, target in TARGETS.items() if name in result and target == Target(Start.OWN, +1)]:
            last = torch.cat([~real[:, 1:], torch.zeros_like(real[:, :1])], 1)[:, None]
            result[name] = result[name].masked_fill(last, torch.nan)
    if not call.has_positions:
        # The first key need not be the first token, unless the keys are another text.
        first = [name for name, target in TARGETS.items() if target.start is Start.FIRST and not call.origin.across]
        undefined = {name for name, one in STORED.items() if one.positional or name in first} & result.keys()
        result |= {name: torch.full_like(result[name], torch.nan) for name in undefined}


def _in_tiles(call: WatchedCall, collect: frozenset[str]) -> dict[str, Tensor]:
    """By torch's operations. For long texts, only those over weights use several threads: the others are too small."""
    threads = torch.get_num_threads()
    with nullcontext() if tiles.are_few(call.attention) else limit_threads(1):
        lse = _lse(call, threads)
        counts = counted(call, lse)
        result = {"lse": lse}
        if collect - _AFTERWARDS:
            names = [name for name in _measurable_targets(call) if name in collect]
            keys = target_keys.target_keys(call, counts, [TARGETS[name] for name in names])
            B, _, T, _ = call.sizes
            targets = torch.stack(keys) if keys else torch.zeros(0, B, T, dtype=torch.int64, device=call.device)
            result |= tile_statistics.pass_over_tiles(
                call.attention, lse, counts, targets, call.shift, bool(collect & set(COLUMNS)), threads
            )
            for name, key, weight in zip(names, keys, result.pop("chosen"), strict=True):
                result[name] = torch.where((key >= 0)[:, None], weight, torch.nan)
            result["largest_key"] = result["largest_key"].masked_fill(~counts, -1)
        rows = [name for name in ROWS if name in result and name != "largest_key"]
        return result | {name: result[name].masked_fill(~counts, torch.nan) for name in rows}


def _measurable_targets(call: WatchedCall) -> list[str]:
    """The statistics of one key per query; without token ids, those that need none."""
    known = call.origin.tokens is not None and call.sizes[3] > 0
    return [name for name in TARGETS if known or name not in NEED_TOKENS]


def _in_one_launch(call: WatchedCall, attention: QK, collect: frozenset[str]) -> dict[str, Tensor] | None:
    """By Triton kernels; None, after a warning, on a GPU that they cannot be built for."""
    from triton.errors import TritonError

    try:
        return _by_kernels(call, attention, collect)
    except TritonError as error:
        warnings.warn(
            f"regard's kernels cannot be built for this GPU and keys of {_bytes_per_key(attention)} bytes "
            f"({type(error).__name__}); watching continues with torch's operations, more slowly",
            stacklevel=2,
        )
        _refused.add((call.device, _bytes_per_key(attention)))
        return None


def _by_kernels(call: WatchedCall, attention: QK, collect: frozenset[str]) -> dict[str, Tensor]:
    """As few operations of torch as possible: each costs a launch."""
    from regard.heads.measure.kernels import launch as gpu

    B, H, T, S = call.sizes
    mask, rest = mask_for_kernels(attention)
    q, k, lse = gpu.ready(attention.q), gpu.ready(attention.k), _lse(call).float().contiguous()
    if not collect - _AFTERWARDS:
        return {"lse": lse.masked_fill(~counted(call, lse), torch.nan)}
    names = _measurable_targets(call)
    first, earlier = _starts(call, lse, mask, rest, bool(NEED_TOKENS & set(names)))
    real = None if call.origin.real is None else call.origin.real.to(call.device)
    received = torch.zeros(B, H, S, dtype=torch.int64, device=call.device) if collect & set(COLUMNS) else None
    targets = [(int(TARGETS[name].start), TARGETS[name].step) for name in names]
    parts = []
    for rows, own_mask in _launches(call, mask, rest):
        own: list[Any] = [None if t is None else t[..., rows].contiguous() for t in (lse, real, earlier)]
        own_q, done = q[:, :, rows], rows.stop == T
        part = gpu.one_pass(own_q, k, attention.scale, own_mask, own[0], own[1], first, own[2], received, targets, done)
        part |= dict(zip(names, part.pop("chosen"), strict=True))
        parts.append(part)
    if len(parts) == 1:
        return parts[0]
    return {n: torch.cat([part[n] for part in parts], dim=-1) if n in parts[0] else t for n, t in parts[-1].items()}


def _starts(
    call: WatchedCall, lse: Tensor, mask: KernelMask, rest: Mask | None, tokens: bool
) -> tuple[Tensor | None, Tensor | None]:
    """The first visible key (B,), None where that is key 0; the earlier occurrence (B, T), where tokens are needed."""
    if call.origin.first is None and rest is None and mask.bias is None and mask.keys is None and mask.window is None:
        return None, target_keys.earlier_from_first_key(call) if tokens else None
    first = target_keys.first_visible(call, counted(call, lse))
    return first.clamp(min=0).int(), target_keys.earlier_occurrence(call, first[:, None]).int() if tokens else None


def _launches(call: WatchedCall, mask: KernelMask, rest: Mask | None) -> Iterator[tuple[slice, KernelMask]]:
    """The queries of each launch and their mask: all at once, unless a mask must be written out as a tensor."""
    B, H, T, S = call.sizes
    size = T if rest is None else max(64, WRITTEN_OUT // max(S * B * H, 1))
    for first in range(0, T, size):
        last = min(first + size, T)
        yield slice(first, last), mask.part(first, last, rest, S, call.device)


def _lse(call: WatchedCall, threads: int | None = None) -> Tensor:
    """log Σ exp(scores): the model's own, or computed; NaN for weights that the model computed itself."""
    B, H, T, _ = call.sizes
    if call.lse is not None:
        return call.lse
    if isinstance(call.attention, OwnWeights):
        return torch.full((B, H, T), torch.nan, device=call.device, dtype=result_dtype(call))
    attention = _in_triton(call)
    if attention is None:
        return tiles.exact_logsumexp(call.attention, threads)
    from regard.heads.measure.kernels import launch as gpu

    mask, rest = mask_for_kernels(attention)
    q, k = gpu.ready(attention.q), gpu.ready(attention.k)
    parts = [gpu.logsumexp(q[:, :, rows], k, attention.scale, part) for rows, part in _launches(call, mask, rest)]
    return torch.cat(parts, dim=-1) if parts else torch.zeros(B, H, T, device=call.device)


def _in_triton(call: WatchedCall) -> QK | None:
    """The attention of this call, where there are kernels for it."""
    (B, H, _, S), attention = call.sizes, call.attention
    if not isinstance(attention, QK) or call.device.type != "cuda" or not attention.q.numel() or not S:
        return None
    fits = B * H <= MOST_PROGRAMS and not call.origin.extra and _HAS_TRITON
    return attention if fits and (call.device, _bytes_per_key(attention)) not in _refused else None


def _bytes_per_key(attention: QK) -> int:
    """The size of a key, as a kernel loads it."""
    return attention.q.shape[3] * min(attention.q.element_size(), 4)


class Form(NamedTuple):
    """What calls that are measured together have in common."""

    queries: torch.Size
    keys: torch.Size
    dtype: torch.dtype
    device: torch.device
    stream: torch.cuda.Stream | None  # on which the copies are made
    others: tuple[object, ...]  # whatever else must be equal

    @property
    def most_calls(self) -> int:
        """How many calls may be measured together."""
        B, H, T, _ = self.queries
        weights = max(B * H * T * self.keys[2], 1)
        if self.device.type == "cpu":
            return tiles.FEW // weights
        size = (self.queries.numel() + self.keys.numel()) * self.dtype.itemsize
        return min(JOINED_WEIGHTS // weights, JOINED_BYTES // max(size, 1), MOST_PROGRAMS // max(B * H, 1))


def form_of(call: WatchedCall) -> Form | None:
    """The form of a call; None where it is measured by itself."""
    attention, origin = call.attention, call.origin
    if not isinstance(attention, QK) or call.device.type not in ("cpu", "cuda"):
        return None
    q, k, mask = attention.q, attention.k, attention.mask
    special = any(t is not None for t in (attention.bias, attention.alibi, origin.dropped))
    if special or not (mask is CAUSAL or mask is EVERYTHING):
        return None
    stream = torch.cuda.current_stream(q.device) if q.is_cuda else None
    known = tuple(t is not None for t in (call.lse, origin.real, origin.tokens, origin.first))
    others = (k.dtype, attention.scale, mask, known, call.has_positions, origin.across, origin.extra)
    return Form(q.shape, k.shape, q.dtype, q.device, stream, others)


class WaitingCalls:
    """Calls of one form that are not measured yet."""

    def __init__(self) -> None:
        self.calls: list[WatchedCall] = []
        self._form: Form | None = None

    def add(self, call: WatchedCall) -> bool:
        """Let this call wait; False where it cannot be measured together with those that wait, or with any."""
        form = form_of(call)
        most = 0 if form is None else form.most_calls
        if most < 2 or (self.calls and (form != self._form or len(self.calls) >= most)):
            return False
        self.calls.append(call)
        self._form = form
        return True

    def drop(self) -> bool:
        """Forget the call that came last; False where none waits."""
        if not self.calls:
            return False
        self.calls.pop()
        self._form = self._form if self.calls else None
        return True

    def measured(self, collect: frozenset[str]) -> list[tuple[WatchedCall, dict[str, Tensor]]]:
        """All calls with their statistics, as statistics.measure() has them; after that, none waits."""
        calls, form = self.calls, self._form
        if form is None:
            return []
        with nullcontext() if form.stream is None else torch.cuda.stream(form.stream):
            together = measure(_joined(calls), collect)
        if form.stream is not None:
            torch.cuda.current_stream(form.device).wait_stream(form.stream)
        self.calls, self._form = [], None  # only now: after an error, they still wait
        parts = [value.unflatten(0, (len(calls), -1)).unbind() for value in together.values()]
        each = zip(*parts, strict=True)
        return [(call, dict(zip(together, own, strict=True))) for call, own in zip(calls, each, strict=True)]


def _joined(calls: Sequence[WatchedCall]) -> WatchedCall:
    """One call with the texts of all."""
    first, origins = calls[0], [call.origin for call in calls]
    known = _concatenated(origins, ("real", "first"))
    tokens = first.origin.tokens
    if tokens is not None:
        shared = first.sizes[0] == 1 and all(origin.tokens is tokens for origin in origins)
        known["tokens"] = tokens.expand(len(calls), -1) if shared else _concatenated(origins, ("tokens",))["tokens"]
    attention = changed(first.attention, **_concatenated([call.attention for call in calls], ("q", "k")))
    lse = _concatenated(calls, ("lse",))
    return changed(first, attention=attention, origin=changed(first.origin, **known), **lse)


def _concatenated(values: Sequence[Any], names: Sequence[str]) -> dict[str, Any]:
    """The tensors of these fields, those of all values one after another, where the first has them."""
    there = [name for name in names if getattr(values[0], name) is not None]
    return {name: torch.cat([getattr(value, name) for value in values]) for name in there}

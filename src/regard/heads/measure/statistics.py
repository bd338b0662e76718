"""Measuring: every statistic of one attention call, on a GPU by kernels of our own, elsewhere by torch's operations.

registry.py defines each statistic.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from functools import cache

import torch
from torch import Tensor

from regard.attention.call import QK
from regard.attention.masks import Mask
from regard.heads.calls.call import OwnWeights, WatchedCall
from regard.heads.calls.visibility import queries_per_key
from regard.heads.measure.kernels import exact_weights as tiles
from regard.heads.measure.kernels import tile_statistics
from regard.heads.measure.kernels.kernel_mask import KernelMask, mask_for_kernels
from regard.heads.measure.on_demand import BY_HEAD, counted, result_dtype
from regard.heads.measure.registry import BY_NAME, COLUMNS, NEED_TOKENS, ROWS, STATISTICS, TARGETS, Start, Statistic
from regard.heads.measure.target_keys import (
    dropped_targets,
    earlier_from_first_key,
    earlier_occurrence,
    first_visible,
    target_keys,
)
from regard.support.torch_threads import limit_threads

WRITTEN_OUT = 1 << 28  # entries of a mask that kernels cannot compute, at a time
MOST_PROGRAMS = 65535  # B · H of one launch
_refused: set[tuple[torch.device, int]] = set()  # devices and key sizes that kernels could not be built for
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
    return {name: result[name] for name in _stored(collect) if name in result}


def _correct(call: WatchedCall, result: dict[str, Tensor]) -> None:
    """0 on targets that a cache has dropped; NaN in what compares positions, where those are unknown."""
    if call.origin.dropped is not None:  # what is in the text and not among these keys has weight 0
        names = [name for name in TARGETS if name in result]
        counts = counted(call, result["lse"])
        for name, absent in zip(names, dropped_targets(call, [TARGETS[name] for name in names]), strict=True):
            result[name] = torch.where(absent[:, None] & counts, 0.0, result[name])
    if not call.has_positions:
        undefined = [one.name for one in STATISTICS if one.name in result and (one.positional or _is_first(one, call))]
        result |= {name: torch.full_like(result[name], torch.nan) for name in undefined}


@cache
def _stored(collect: frozenset[str]) -> list[str]:
    """The names of the tensors of these statistics."""
    return [name for one in STATISTICS if one.name in collect for name in one.stored]


def _is_first(statistic: Statistic, call: WatchedCall) -> bool:
    """Is it the weight on the first key, where that need not be the first token?"""
    return not call.origin.across and statistic.target is not None and statistic.target.start is Start.FIRST


def _in_tiles(call: WatchedCall, collect: frozenset[str]) -> dict[str, Tensor]:
    """By torch's operations. For long texts, only those over weights use several threads: the others are too small."""
    threads = torch.get_num_threads()
    with nullcontext() if tiles.are_few(call.attention) else limit_threads(1):
        return _from_tiles(call, collect, threads)


def _from_tiles(call: WatchedCall, collect: frozenset[str], threads: int) -> dict[str, Tensor]:
    lse = _lse(call, threads)
    counts = counted(call, lse)
    result = {"lse": lse}
    if collect - _AFTERWARDS:
        names = [name for name in _measurable_targets(call) if name in collect]
        keys = target_keys(call, counts, [TARGETS[name] for name in names])
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
    parts = []
    for rows, part_mask in _launches(call, mask, rest):
        part = gpu.one_pass(
            q[:, :, rows],
            k,
            attention.scale,
            part_mask,
            lse[:, :, rows].contiguous(),
            real=None if real is None else real[:, rows].contiguous(),
            first=first,
            earlier=None if earlier is None else earlier[:, rows].contiguous(),
            received=received,
            targets=[(int(TARGETS[name].start), TARGETS[name].step) for name in names],
            done=rows.stop == T,
        )
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
        return None, earlier_from_first_key(call) if tokens else None
    first = first_visible(call, counted(call, lse))
    return first.clamp(min=0).int(), earlier_occurrence(call, first[:, None]).int() if tokens else None


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
    fits = B * H <= MOST_PROGRAMS and not call.origin.extra and _has_triton()
    return attention if fits and (call.device, _bytes_per_key(attention)) not in _refused else None


def _bytes_per_key(attention: QK) -> int:
    """The size of a key, as a kernel loads it."""
    return attention.q.shape[3] * min(attention.q.element_size(), 4)


@cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None

"""Proof that the keys of an attention call begin with those of an earlier one, bit for bit.

A cache may be copied, cut back or reordered between two forwards, so their sizes prove nothing. Keys are compared
themselves where they were kept, otherwise their fingerprints: 64 bits for each key of each text. Where a model computes
its weights itself, the keys are not known, and the values, which are cached with them, take their place.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from regard.attention.call import QK
from regard.heads.calls.call import WatchedCall

_AT_ONCE = {"cpu": 1 << 20}  # numbers that are hashed at a time; on other devices 2²⁶
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def fingerprint(keys: Tensor) -> Tensor:
    """(B, S) int64, from keys or values (B, H, S, D)."""
    B, H, S, D = keys.shape
    bits = keys.detach().view(_INTEGERS[keys.element_size()])
    factors = _factors(H * D, keys.device).view(H, 1, D)
    if H > 1 and S:
        factors = _once_for_repeated_heads(bits, factors)
    step = max(1, _AT_ONCE.get(keys.device.type, 1 << 26) // max(B * H * D, 1))
    return torch.cat([(part.long() * factors).sum((1, 3)) for part in bits.split(step, dim=2)], 1)


def _once_for_repeated_heads(bits: Tensor, factors: Tensor) -> Tensor:
    """(H, 1, D): the factors of each head; where every head is there n times, those of H / n heads, and 0 for the rest.

    Keys that query heads share are sometimes written out for each, and sometimes not, by the same model. Everything
    stays on the device: a value that Python reads makes it wait for the GPU.
    """
    H = len(factors)
    at, is_new = torch.arange(H, device=bits.device), torch.ones(H, dtype=torch.bool, device=bits.device)
    is_new[1:] = (bits[:, 1:] != bits[:, :-1]).any(3).any(2).any(0)
    times = torch.where(is_new & (at > 0), at, H).amin()
    is_first = at % times == 0
    is_first |= (is_new != is_first).any() | (H % times != 0)  # not all of them as often
    return factors[is_first.cumsum(0) - 1] * is_first[:, None, None]


@cache
def _factors(size: int, device: torch.device) -> Tensor:
    """(size,) odd factors without a pattern; sums of products with them wrap around at 64 bits."""
    x = torch.arange(1, size + 1, device=device) * -7046029254386353131
    for shift, factor in ((30, -4658895280553007687), (27, -7723592293110705685)):
        x = (x ^ ((x >> shift) & ((1 << (64 - shift)) - 1))) * factor
    return x | 1


def fingerprint_of(call: WatchedCall) -> Tensor | None:
    """(B, S): that of the keys of a call; None where they are unknown."""
    known, attention = call.origin.fingerprint, call.attention
    if known is not None or not isinstance(attention, QK) or attention.k.shape[3] == 0:
        return known
    return fingerprint(attention.k)


def fingerprint_of_values(values: Tensor | None, sizes: tuple[int, int, int, int]) -> Tensor | None:
    """(B, S), from values (…, S, D) in whatever layout a model has them; None where it is not understood."""
    B, H, _, S = sizes
    if values is None or values.dim() < 2 or values.shape[-2] != S or values.is_nested or not values.numel():
        return None
    if values.dim() == 3:
        values = values.unflatten(0, (B, H)) if values.shape[0] == B * H else values[:, None]
    values = values[None, None] if values.dim() == 2 else values.flatten(0, -4)
    return fingerprint(values).expand(B, S) if values.shape[0] in (1, B) else None


def texts_of_before(old: WatchedCall, new: WatchedCall, past: int, same: bool = False) -> Tensor | None:
    """(B, B) bool: are the first `past` keys of text i of the new call the last ones of text j of the old one?

    None where no text has its keys of before. same: all keys are the same.
    """
    start = 0 if same else old.sizes[3] - past
    a, b = old.attention, new.attention
    if isinstance(a, QK) and isinstance(b, QK) and a.k.shape[3] == b.k.shape[3] > 0:
        before, after = a.k[:, :, start : start + past], b.k[:, :, :past]
        if before.shape == after.shape and torch.equal(before, after):
            return torch.eye(before.shape[0], dtype=torch.bool)
    marks = fingerprint_of(old), fingerprint_of(new)
    if marks[0] is None or marks[1] is None:
        return None
    before, after = marks[0][:, start : start + past].to(marks[1].device), marks[1][:, :past]
    equal = torch.stack([(before == row).all(1) for row in after]).cpu()
    return equal if bool(equal.any(1).all()) else None

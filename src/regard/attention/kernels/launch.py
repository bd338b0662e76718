"""The statistics of every head on a GPU: programs.py's Triton programs, and what they are launched with."""

from __future__ import annotations

import warnings
from contextlib import suppress
from importlib import import_module
from typing import Any

import torch
import triton
from torch import Tensor
from triton.errors import TritonError
from triton.tools.tensor_descriptor import TensorDescriptor

from regard.attention.kernels.kernel_mask import Rule
from regard.attention.kernels.triton_statistics import log_sums, one_sweep, pick

_hopper: list[Any] = []
with suppress(ImportError, AttributeError):  # a Triton without Gluon, or with one that has other names
    _hopper.append(import_module("regard.attention.kernels.hopper_statistics"))

LOG2E = 1.4426950408889634
FIXED = 1 << 40  # what a key receives is summed in whole 2⁻⁴⁰


def logsumexp(q: Tensor, k: Tensor, scale: float, rule: Rule) -> Tensor:
    """log Σ exp(scores), (B, H, T); −∞ where a query sees nothing."""
    B, H, T, _ = q.shape
    lse = torch.empty(B, H, T, device=q.device, dtype=torch.float32)
    BM, BN = 64, 64
    log_sums[(B * H, triton.cdiv(T, BM))](
        *_placed(q), *_placed(k), lse, *_ruled(rule, q), *_sized(q, k, rule, scale),
        BM=BM, BN=BN, **_known(rule, q), num_warps=4, num_stages=2,
    )  # fmt: skip
    return lse


def one_pass(
    q: Tensor, k: Tensor, scale: float, rule: Rule, lse: Tensor, real: Tensor | None, first: Tensor | None,
    last: Tensor | None, received: Tensor | None, done: bool = True,
) -> dict[str, Tensor]:  # fmt: skip
    """Every statistic of a row, (B, H, T) each; and what keys receive, (B, H, S), once all queries are `done`.

    lse: (B, H, T); queries whose lse is not finite do not count. real: (B, T) bool, those that count at all.
    first: (B,) int32, the first key to be seen, 0 unless given. last: (B, T) int32, where each token stood before.
    received: (B, H, S) int64 in units of 1 / FIXED, added to.
    """
    B, H, T, D = q.shape
    if real is not None:  # what does not count may be NaN, which would count in sums
        q = q.masked_fill(~real[:, None, :, None], 0)
    N = 3 if last is None else 5
    new: Any = {"device": q.device, "dtype": torch.float32}
    entropy, distance, largest, known = torch.empty(4, B, H, T, **new)
    folded = torch.empty(B, H, T, device=q.device, dtype=torch.int32)
    key = torch.empty(B, H, T, device=q.device, dtype=torch.int64)
    chosen = torch.empty(N, B, H, T, **new)
    S = k.shape[2]
    sums = torch.empty(B, H, S, **new) if received is not None and done else None
    finish = sums is not None and S <= 8 * T  # by the same launch, where there are programs enough
    sizes: Any = _known(rule, q) | {"REAL": real is not None}
    told = *_ruled(rule, q), *_sized(q, k, rule, scale)
    kept = folded if real is None else real.view(torch.uint8)
    U = _ahead(q, k, scale * LOG2E, rule, lse, real, entropy, distance, largest, folded, received)
    early = U > 0
    if not early:
        U, BM = 1, 64 if q.element_size() <= 2 else 32
        one_sweep[(B * H, triton.cdiv(T, BM))](
            *_placed(q), _described(k, 64), lse, kept, entropy, distance, largest, folded,
            folded if received is None else received, *told, BM=BM, BN=64, **sizes, COLUMNS=received is not None,
            num_warps=4, num_stages=3, maxnreg=168 if BM == 64 else None,
        )  # fmt: skip
    BM = 32 if D <= 64 else 16
    pick[(triton.cdiv(T, BM), B * H)](
        *_placed(q), *_placed(k), lse, kept, folded if first is None else first, folded if last is None else last, folded,
        key, known, chosen, received if finish else folded, sums if finish else known, *told, BM=BM, U=U, N=N, **sizes,
        FIRST=first is not None, EARLY=early, COLUMNS=finish, num_warps=4,
        **({"launch_pdl": True} if early else {}),
    )  # fmt: skip
    found = {"lse": known, "entropy": entropy, "distance": distance, "largest": largest, "largest_key": key}
    found |= dict(zip(("sink", "previous", "self", "duplicate", "induction"), chosen, strict=False))
    if sums is not None and received is not None:
        found["received"] = sums if finish else torch.mul(received, 1 / FIXED, out=sums)
    return found


def _ahead(q: Tensor, k: Tensor, scale2: float, rule: Rule, *told: Tensor | None) -> int:
    """hopper.sweep, where there is one and it can be built; how many tiles it folds together, or 0."""
    if not _hopper or not _hopper[0].fits(q, k, rule):
        return 0
    try:
        folded: int = _hopper[0].sweep(q, k, scale2, rule, *told)
    except (TritonError, ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
        # Nothing has been launched. Gluon is young, and may mean other things in other versions of Triton.
        warnings.warn(
            f"regard's program for Hopper GPUs cannot be built by Triton {triton.__version__} ({type(error).__name__}); "
            "watching goes on by another, up to a fifth more slowly",
            stacklevel=2,
        )
        _hopper.clear()
        return 0
    return folded


def ready(t: Tensor) -> Tensor:
    """The tensor as the copy engine wants it: channels side by side, rows and heads on multiples of 16 bytes."""
    if t.dtype is torch.float64 or not t.is_cuda:  # Triton's interpreter knows no product of 16-bit numbers
        t = t.float()
    step = 16 // t.element_size()
    if t.stride(3) == 1 and t.data_ptr() % 16 == 0 and all(n % step == 0 and n > 0 for n in t.stride()[:3]):
        return t
    wide = -t.shape[3] % step
    return torch.nn.functional.pad(t, (0, wide)).contiguous()


def _placed(t: Tensor) -> tuple[Any, ...]:
    assert t.stride(3) == 1 or t.shape[3] == 1
    return t, t.stride(0), t.stride(1), t.stride(2)


def _described(t: Tensor, rows: int) -> TensorDescriptor:
    """For the copy engine, which fetches whole tiles and fills with 0 what lies outside."""
    return TensorDescriptor(
        t, list(t.shape), list(t.stride()), [1, 1, rows, max(16, triton.next_power_of_2(t.shape[3]))]
    )


def _sized(q: Tensor, k: Tensor, rule: Rule, scale: float) -> tuple[Any, ...]:
    H, T, S = q.shape[1], q.shape[2], k.shape[2]
    return H, H // k.shape[1], T, S, rule.shift, rule.window or 0, scale * LOG2E


def _known(rule: Rule, q: Tensor) -> dict[str, Any]:
    D = q.shape[3]
    return {
        "D": D, "DP": max(16, triton.next_power_of_2(D)), "CAUSAL": rule.causal, "WINDOW": rule.window is not None,
        "KEYS": rule.keys is not None, "DENSE": rule.dense is not None, "BIAS": rule.bias is not None,
        "ALIBI": rule.slopes is not None, "PRECISION": "tf32x3" if q.is_cuda else "ieee",
    }  # fmt: skip


def _ruled(rule: Rule, q: Tensor) -> tuple[Any, ...]:
    """Pointers and strides of a rule; q stands where there is none, and is not read."""
    keys = q if rule.keys is None else rule.keys.view(torch.uint8)
    told: list[Any] = [keys]
    for t in (rule.dense, rule.bias):
        if t is None:
            told += [q, 0, 0, 0, 0]
        else:
            told += [t.view(torch.uint8) if t.dtype is torch.bool else t]
            told += [0 if n == 1 else stride for n, stride in zip(t.shape, t.stride(), strict=True)]
    return (*told, q if rule.slopes is None else rule.slopes)

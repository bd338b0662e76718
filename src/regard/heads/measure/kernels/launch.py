"""The statistics of every head on a GPU: launches the kernels of triton_statistics.py and hopper_statistics.py."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

import torch
import triton
from torch import Tensor
from triton.errors import TritonError
from triton.tools.tensor_descriptor import TensorDescriptor

from regard.heads.measure.kernels.kernel_mask import KernelMask
from regard.heads.measure.kernels.triton_statistics import Grid, Rows, Rules, Sizes, log_sums, one_sweep, pick

_hopper: list[Any] = []
with suppress(ImportError, AttributeError):  # a Triton without Gluon, or whose Gluon has other names
    _hopper.append(import_module("regard.heads.measure.kernels.hopper_statistics"))

LOG2E = 1.4426950408889634
FIXED = 1 << 40  # what a key receives is summed as an integer in units of 2⁻⁴⁰


def logsumexp(q: Tensor, k: Tensor, scale: float, mask: KernelMask) -> Tensor:
    """log Σ exp(scores), (B, H, T); −∞ where a query sees nothing."""
    B, H, T, _ = q.shape
    lse = torch.empty(B, H, T, device=q.device, dtype=torch.float32)
    BM, BN = 64, 64
    log_sums[(B * H, triton.cdiv(T, BM))](
        _rows(q), _rows(k), scale * LOG2E, _sizes(q, k, mask), _rules(mask), lse,
        BM=BM, BN=BN, CAUSAL=mask.causal, **_widths(q), **_precision(q), num_warps=4, num_stages=2,
    )  # fmt: skip
    return lse


def one_pass(
    q: Tensor,
    k: Tensor,
    scale: float,
    mask: KernelMask,
    lse: Tensor,
    real: Tensor | None,
    first: Tensor | None,
    earlier: Tensor | None,
    received: Tensor | None,
    targets: Sequence[tuple[int, int]],
    done: bool = True,
) -> dict[str, Tensor]:
    """Every statistic of a row, (B, H, T) each; and what keys receive, (B, H, S), once all queries are `done`.

    lse: (B, H, T); queries whose lse is not finite do not count. real: (B, T) bool, the queries that count at all.
    first: (B,) int32, the first key that is visible, 0 unless given. earlier: (B, T) int32, the earlier occurrence of
    each query's token, far below 0 where there is none. received: (B, H, S) int64 in units of 1 / FIXED, added to.
    targets: (start, step) for each key whose weight is wanted, see triton_statistics.pick; "chosen", (N, B, H, T).
    """
    B, H, T, D = q.shape
    S = k.shape[2]
    if real is not None:  # what does not count may be NaN, which would spoil the sums
        q = q.masked_fill(~real[:, None, :, None], 0)
    new: Any = {"device": q.device, "dtype": torch.float32}
    entropy, distance, largest, known = torch.empty(4, B, H, T, **new)
    folded = torch.empty(B, H, T, device=q.device, dtype=torch.int32)
    key = torch.empty(B, H, T, device=q.device, dtype=torch.int64)
    chosen = torch.empty(len(targets), B, H, T, **new)
    sums = torch.empty(B, H, S, **new) if received is not None and done else None
    finish = sums is not None and S <= 8 * T  # in the same launch, where it has enough programs
    counted = None if real is None else real.view(torch.uint8)
    common: Any = scale * LOG2E, _sizes(q, k, mask), _rules(mask), lse, counted
    U = _sweep_ahead(q, k, scale * LOG2E, mask, lse, real, entropy, distance, largest, folded, received)
    early = U > 0
    if not early:
        U, BM = 1, 64 if q.element_size() <= 2 else 32
        one_sweep[(B * H, triton.cdiv(T, BM))](
            _rows(q), _described(k, 64), *common, entropy, distance, largest, folded, received,
            BM=BM, BN=64, CAUSAL=mask.causal, **_widths(q), **_precision(q),
            num_warps=4, num_stages=3, maxnreg=168 if BM == 64 else None,
        )  # fmt: skip
    BM = 32 if D <= 64 else 16
    pick[(triton.cdiv(T, BM), B * H)](
        _rows(q), _rows(k), *common, first, earlier, folded, key, known, chosen,
        received if finish else None, sums if finish else None,
        TARGETS=tuple(targets), BM=BM, U=U, CAUSAL=mask.causal, EARLY=early, **_widths(q), num_warps=4,
        **({"launch_pdl": True} if early else {}),
    )  # fmt: skip
    result = {"lse": known, "entropy": entropy, "distance": distance, "largest": largest, "largest_key": key}
    result["chosen"] = chosen
    if sums is not None and received is not None:
        result["received"] = sums if finish else torch.mul(received, 1 / FIXED, out=sums)
    return result


def _sweep_ahead(q: Tensor, k: Tensor, scale2: float, mask: KernelMask, *tensors: Tensor | None) -> int:
    """Launch the Hopper kernel where it applies and can be built; the number of tiles it folds together, or 0."""
    if not _hopper or not _hopper[0].fits(q, k, mask):
        return 0
    try:
        folded: int = _hopper[0].sweep(q, k, scale2, mask, *tensors)
    except (TritonError, ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
        # Nothing has been launched. Gluon is young, and differs between versions of Triton.
        warnings.warn(
            f"regard's program for Hopper GPUs cannot be built by Triton {triton.__version__} "
            f"({type(error).__name__}); watching continues with another one, up to a fifth more slowly",
            stacklevel=2,
        )
        _hopper.clear()
        return 0
    return folded


def ready(t: Tensor) -> Tensor:
    """The tensor as the copy engine needs it: channels contiguous, rows and heads on multiples of 16 bytes."""
    if t.dtype is torch.float64 or not t.is_cuda:  # Triton's interpreter has no product of 16-bit numbers
        t = t.float()
    step = 16 // t.element_size()
    if t.stride(3) == 1 and t.data_ptr() % 16 == 0 and all(n % step == 0 and n > 0 for n in t.stride()[:3]):
        return t
    wide = -t.shape[3] % step
    return torch.nn.functional.pad(t, (0, wide)).contiguous()


def _rows(t: Tensor) -> Rows:
    assert t.stride(3) == 1 or t.shape[3] == 1
    return Rows(t, t.stride(0), t.stride(1), t.stride(2))


def _grid(t: Tensor | None) -> Grid | None:
    if t is None:
        return None
    strides = (0 if n == 1 else stride for n, stride in zip(t.shape, t.stride(), strict=True))
    return Grid(t.view(torch.uint8) if t.dtype is torch.bool else t, *strides)


def _rules(mask: KernelMask) -> Rules:
    keys = None if mask.keys is None else mask.keys.view(torch.uint8)
    return Rules(mask.window, keys, _grid(mask.dense), _grid(mask.bias), mask.slopes)


def _sizes(q: Tensor, k: Tensor, mask: KernelMask) -> Sizes:
    H, T, S = q.shape[1], q.shape[2], k.shape[2]
    return Sizes(H, H // k.shape[1], T, S, mask.shift)


def _widths(q: Tensor) -> dict[str, int]:
    return {"D": q.shape[3], "DP": max(16, triton.next_power_of_2(q.shape[3]))}


def _precision(q: Tensor) -> dict[str, str]:
    return {"PRECISION": "tf32x3" if q.is_cuda else "ieee"}


def _described(t: Tensor, rows: int) -> TensorDescriptor:
    """For the copy engine, which loads complete tiles, with 0 outside of the tensor."""
    return TensorDescriptor(
        t, list(t.shape), list(t.stride()), [1, 1, rows, max(16, triton.next_power_of_2(t.shape[3]))]
    )

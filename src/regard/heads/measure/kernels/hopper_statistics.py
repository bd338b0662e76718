"""triton_statistics.one_sweep in Gluon, for Hopper GPUs: the next scores are computed while these are summed.

Triton waits for every product of queries and keys; here the product of the next tile is started first, and the copy
engine loads the keys of several tiles at once. Only for 16-bit queries and keys with a causal mask or none, and nothing
added to the scores; triton_statistics.py does the rest. Results differ from one_sweep's by rounding only.
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
from triton.language.extra.cuda import gdc_launch_dependents

from regard.heads.measure.kernels.kernel_mask import KernelMask

RING = 2  # steps whose keys are in shared memory
_load = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared  # Triton 3.6 has only the second


def fits(q: Tensor, k: Tensor, mask: KernelMask) -> bool:
    """Can this kernel replace one_sweep?"""
    return (
        q.is_cuda
        and torch.version.hip is None
        and torch.cuda.get_device_capability(q.device)[0] == 9
        and q.dtype in (torch.bfloat16, torch.float16)
        and q.dtype is k.dtype
        and q.shape[3] == k.shape[3]
        and q.shape[3] in (64, 128)
        and mask.plain
    )


def sweep(
    q: Tensor,
    k: Tensor,
    scale2: float,
    mask: KernelMask,
    lse: Tensor,
    real: Tensor | None,
    entropy: Tensor,
    distance: Tensor,
    largest: Tensor,
    key: Tensor,
    received: Tensor | None,
) -> int:
    """Launch it; returns how many tiles of 64 keys were folded together in `key`."""
    B, H, T, D = q.shape
    S, BM, U = k.shape[2], 64, 4 if D == 64 and T > 4096 else 2  # as measured on an H200
    one_sweep[(B * H, triton.cdiv(T, BM))](
        _described(q, BM), _described(k, U * 64), lse, key if real is None else real.view(torch.uint8),
        entropy, distance, largest, key, key if received is None else received,
        H, H // k.shape[1], T, S, mask.shift, scale2,
        D=D, BM=BM, U=U, R=RING, CAUSAL=mask.causal, COLUMNS=received is not None, REAL=real is not None, num_warps=4,
    )  # fmt: skip
    return U


def _described(t: Tensor, rows: int) -> TensorDescriptor:
    """For the copy engine, which loads complete tiles, with 0 outside of the tensor."""
    block = [1, 1, rows, t.shape[3]]
    kind = gl.bfloat16 if t.dtype is torch.bfloat16 else gl.float16
    layout = gl.NVMMASharedLayout.get_default_for(block, kind)
    return TensorDescriptor(t, list(t.shape), list(t.stride()), block, layout)


@gluon.jit
def _pair(x, BM: gl.constexpr):
    """The two keys, 8 apart, that one thread holds of each query."""
    return gl.split(gl.permute(gl.reshape(x, [4, 2, 8, BM]), [0, 2, 3, 1]))


@gluon.jit
def _counts(lse, Real, b, rows, T, REAL: gl.constexpr):
    """Which rows count."""
    counts = (lse > -1.0e30) & (lse < 1.0e30)
    if REAL:
        counts = counts & (gl.load(Real + b.to(gl.int64) * T + rows, mask=rows < T, other=0) != 0)
    return counts


@gluon.jit
def _fetch(Kd, ring, bars, b, g, j, steps, R: gl.constexpr, U: gl.constexpr):
    """Start loading the keys of step j."""
    mbarrier.expect(bars.index(j % R), Kd.block_type.nbytes, pred=j < steps)
    _load(Kd, [b, g, j * (U * 64), 0], bars.index(j % R), ring.index(j % R), pred=j < steps)


@gluon.jit
def _product(ring, qT, j, u: gl.constexpr, like, R: gl.constexpr, U: gl.constexpr):
    """Start computing the scores of tile u of step j: keys × queries."""
    k = ring.index(j % R).reshape([U * 64, qT.shape[0]]).slice(u * 64, 64)
    return warpgroup_mma(k, qT, gl.zeros_like(like), use_acc=False, is_async=True)


@gluon.jit
def _tile(
    x, sums, start, at, lse, rows, cols, T, S, shift, scale2, BM: gl.constexpr, MASK: gl.constexpr, CAUSAL: gl.constexpr
):  # fmt: skip
    """Add one tile to the sums over keys; returns the sums over queries."""
    ps, pd, mx = sums
    x = x * scale2 - lse
    key, row = gl.expand_dims(cols + start, 1), gl.expand_dims(rows, 0)
    if MASK:  # queries past the last need no check: their lse makes all weights 0
        last = S - 1
        if CAUSAL:
            last = gl.minimum(row + shift, last)
        x = gl.where(key <= last, gl.maximum(x, -1.0e30), -1.0e30)
    if CAUSAL:  # the row's distance from the first one of its block is added at the end
        far = gl.expand_dims((at - start - cols).to(gl.float32), 1) + gl.zeros_like(x)
    else:
        far = gl.abs((row + shift - key).to(gl.float32))
    p = gl.exp2(x)
    x0, x1 = _pair(x, BM)
    p0, p1 = _pair(p, BM)
    d0, d1 = _pair(far, BM)
    ps += p0 * x0
    ps += p1 * x1
    pd += p0 * d0
    pd += p1 * d1
    return (ps, pd, gl.maximum(mx, gl.maximum(x0, x1))), gl.sum(p, axis=1)


@gluon.jit
def _receive(Received, start, cols, sums, S, MASK: gl.constexpr, COLUMNS: gl.constexpr):
    if COLUMNS:
        gl.atomic_add(
            Received + start + cols, (sums * 1099511627776.0).to(gl.int64), mask=(start + cols < S) | (not MASK),
            sem="relaxed",
        )  # fmt: skip


@gluon.jit
def _step(
    j, one, sums, where, at, lse, rows, cols, Kd, ring, bars, qT, b, g, steps, Received, T, S, shift, scale2,
    BM: gl.constexpr, U: gl.constexpr, R: gl.constexpr, MASK: gl.constexpr, CAUSAL: gl.constexpr, COLUMNS: gl.constexpr,
):  # fmt: skip
    """U tiles: sum the one whose scores are ready while those of the next are computed."""
    before, start = sums[2], j * (U * 64)
    received = ()
    for u in gl.static_range(U - 1):
        ahead = _product(ring, qT, j, u + 1, one, R, U)
        sums, here = _tile(one, sums, start + u * 64, at, lse, rows, cols, T, S, shift, scale2, BM, MASK, CAUSAL)
        received += (here,)  # type: ignore[assignment]
        one = warpgroup_mma_wait(num_outstanding=0, deps=(ahead,))
    _fetch(Kd, ring, bars, b, g, j + R, steps, R, U)
    mbarrier.wait(bars.index((j + 1) % R), ((j + 1) // R) & 1, pred=j + 1 < steps)
    ahead = _product(ring, qT, j + 1, 0, one, R, U)
    sums, here = _tile(one, sums, start + (U - 1) * 64, at, lse, rows, cols, T, S, shift, scale2, BM, MASK, CAUSAL)
    received += (here,)  # type: ignore[assignment]
    for u in gl.static_range(U):  # all at the end: in between they would interrupt the overlap
        _receive(Received, start + u * 64, cols, received[u], S, MASK, COLUMNS)
    where = gl.where(sums[2] > before, start, where)
    one = warpgroup_mma_wait(num_outstanding=0, deps=(ahead,))
    return one, sums, where


@gluon.jit(do_not_specialize=["H", "group", "T", "S", "shift"])
def one_sweep(
    Qd, Kd, Lse, Real, Entropy, Distance, Largest, Key, Received, H, group, T, S, shift, scale2,
    D: gl.constexpr, BM: gl.constexpr, U: gl.constexpr, R: gl.constexpr, CAUSAL: gl.constexpr, COLUMNS: gl.constexpr,
    REAL: gl.constexpr,
):  # fmt: skip
    scores: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BM, 16])
    q0 = (gl.num_programs(1) - 1 - gl.program_id(1)) * BM  # the longest rows of all heads first
    bh = gl.program_id(0)
    b, h = bh // H, bh % H
    g = h // group
    row0 = bh.to(gl.int64) * T
    Received += bh.to(gl.int64) * S
    at = q0 + shift
    high, free = S, S
    if CAUSAL:
        high = gl.maximum(gl.minimum(S, gl.minimum(q0 + BM, T) + shift), 0)
        free = gl.maximum(gl.minimum(at + 1, S), 0)
    clear, steps = free // (U * 64), (high + U * 64 - 1) // (U * 64)  # up to `clear`, nothing is hidden
    rows = q0 + gl.arange(0, BM, layout=gl.SliceLayout(0, scores))
    cols = gl.arange(0, 64, layout=gl.SliceLayout(1, scores))
    lse = gl.load(Lse + row0 + rows, mask=rows < T, other=float("inf"))
    gdc_launch_dependents()  # the next kernel may start where this one leaves resources

    ring = gl.allocate_shared_memory(Kd.dtype, [R, 1, 1, U * 64, D], Kd.layout)
    queries = gl.allocate_shared_memory(Qd.dtype, [1, 1, BM, D], Qd.layout)
    bars = gl.allocate_shared_memory(gl.int64, [R + 1, 1], mbarrier.MBarrierLayout())
    for r in gl.static_range(R + 1):
        mbarrier.init(bars.index(r), count=1)
    fence_async_shared()
    mbarrier.expect(bars.index(R), Qd.block_type.nbytes)
    _load(Qd, [b, h, q0, 0], bars.index(R), queries)
    for r in gl.static_range(R):
        _fetch(Kd, ring, bars, b, g, r, steps, R, U)
    counts = _counts(lse, Real, b, rows, T, REAL)
    lse = gl.expand_dims(gl.where(counts, lse * 1.4426950408889634, 1.0e30), 0)  # so high that all weights are 0
    nothing = gl.zeros([64, BM], gl.float32, layout=scores)
    ps, pd = _pair(nothing, BM)
    sums = (ps, pd, ps - 3.0e38)
    where = ps.to(gl.int32)

    mbarrier.wait(bars.index(R), 0)
    mbarrier.wait(bars.index(0), 0, pred=steps > 0)
    qT = queries.reshape([BM, D]).permute([1, 0])
    one = warpgroup_mma_wait(num_outstanding=0, deps=(_product(ring, qT, 0, 0, nothing, R, U),))
    for j in range(clear):
        one, sums, where = _step(
            j, one, sums, where, at, lse, rows, cols, Kd, ring, bars, qT, b, g, steps, Received, T, S, shift, scale2,
            BM, U, R, False, CAUSAL, COLUMNS,
        )  # fmt: skip
    for j in range(clear, steps):
        one, sums, where = _step(
            j, one, sums, where, at, lse, rows, cols, Kd, ring, bars, qT, b, g, steps, Received, T, S, shift, scale2,
            BM, U, R, True, CAUSAL, COLUMNS,
        )  # fmt: skip

    # The remaining sums are spread over 32 threads of four warps; convert the layout so that most are in one thread.
    C: gl.constexpr = BM // 4
    by_query: gl.constexpr = gl.BlockedLayout([C, 1], [32 // C, C], [1, 4], [1, 0])
    ps, pd, mx = sums
    at_key, _ = _pair(gl.expand_dims(cols, 1) + nothing.to(gl.int32), BM)
    ps, pd, mx = _gather(ps, by_query, BM), _gather(pd, by_query, BM), _gather(mx, by_query, BM)
    spot = _gather(where + at_key, by_query, BM)
    rows = q0 + gl.arange(0, BM, layout=gl.SliceLayout(0, by_query))
    entropy = gl.abs(0.6931471805599453 * gl.sum(ps, axis=0))  # rounding may leave it at −0
    distance = gl.sum(pd, axis=0)
    if CAUSAL:
        distance += (rows - q0).to(gl.float32)
    m = gl.max(mx, axis=0)
    key = gl.min(gl.where(mx == gl.expand_dims(m, 0), spot, 2147483647), axis=0)
    lse = gl.load(Lse + row0 + rows, mask=rows < T, other=float("inf"))
    counts = _counts(lse, Real, b, rows, T, REAL)
    nan = float("nan")
    gl.store(Entropy + row0 + rows, gl.where(counts, entropy, nan), mask=rows < T)
    gl.store(Distance + row0 + rows, gl.where(counts, distance, nan), mask=rows < T)
    gl.store(Largest + row0 + rows, gl.where(counts, gl.exp2(m), nan), mask=rows < T)
    gl.store(Key + row0 + rows, key, mask=rows < T)
    for r in gl.static_range(R + 1):
        mbarrier.invalidate(bars.index(r))


@gluon.jit
def _gather(x, layout: gl.constexpr, BM: gl.constexpr):
    return gl.convert_layout(gl.reshape(x, [32, BM]), layout)

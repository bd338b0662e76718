"""The statistics of every head in one pass over the keys, in Triton: linear memory, fp32 sums, bitwise reproducible.

A program holds a block of queries and loops over the keys. Tiles of scores are transposed, keys × queries: sums over
queries (what a key receives) then stay within a few threads, and sums over keys (what a query does) are kept element
by element and reduced once, at the end. Sums across programs are integers, in units of 2⁻⁴⁰: any order will do.

Arguments that belong together are passed as one named tuple. A pointer that is None is a constant of the compiled
kernel, so what a call does not have costs nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl


class Rows(NamedTuple):
    """Queries or keys, (B, H, rows, D): pointer and strides; the last axis is contiguous."""

    data: Any
    batch: int
    head: int
    row: int


class Grid(NamedTuple):
    """A tensor that broadcasts to (B, H, T, S): pointer and strides, 0 along an axis of size 1."""

    data: Any
    batch: int
    head: int
    row: int
    column: int


class Rules(NamedTuple):
    """Which keys are hidden, and what is added to the scores; None is nothing."""

    window: int | None
    keys: Any  # (B, S) uint8
    dense: Grid | None  # uint8
    bias: Grid | None
    slopes: Any  # (H,)


class Sizes(NamedTuple):
    """heads: H; group: how many of them share a key; query i is at key position i + shift."""

    heads: int
    group: int
    T: int
    S: int
    shift: int


@triton.jit
def _offset(grid, b, h, rows, cols):
    """The addresses of these rows and columns of one head."""
    first = grid.data + b * grid.batch + h * grid.head
    return first + rows.to(tl.int64) * grid.row + cols.to(tl.int64) * grid.column


@triton.jit
def _allowed(rows, cols, seen, b, h, sizes, rules, CAUSAL: tl.constexpr):
    """May these queries see these keys? rows and cols broadcast with each other; `seen` says which of them exist."""
    at = rows + sizes.shift
    if CAUSAL:
        seen = seen & (cols <= at)
    if rules.window is not None:
        seen = seen & (at - cols < rules.window) & (cols - at < rules.window)
    if rules.keys is not None:
        seen = seen & (tl.load(rules.keys + b * sizes.S + cols, mask=(cols >= 0) & (cols < sizes.S), other=0) != 0)
    if rules.dense is not None:
        seen = seen & (tl.load(_offset(rules.dense, b, h, rows, cols), mask=seen, other=0) != 0)
    return seen


@triton.jit
def _added(x, rows, cols, seen, b, h, sizes, rules):
    """Scores in units of log 2, with what is added to them."""
    if rules.bias is not None:
        x += tl.load(_offset(rules.bias, b, h, rows, cols), mask=seen, other=0).to(tl.float32) * 1.4426950408889634
    if rules.slopes is not None:
        far = tl.abs((rows + sizes.shift - cols).to(tl.float32))
        x -= tl.load(rules.slopes + h).to(tl.float32) * 1.4426950408889634 * far
    return x


@triton.jit
def _tile(x, rows, cols, lse, b, h, sizes, rules, CAUSAL: tl.constexpr):
    """log₂ of the weights of one tile, where something may be hidden or added."""
    rows, cols = rows[None, :], cols[:, None]
    seen = _allowed(rows, cols, (cols < sizes.S) & (rows < sizes.T), b, h, sizes, rules, CAUSAL)
    x = _added(x, rows, cols, seen, b, h, sizes, rules)
    return tl.where(seen, tl.maximum(x - lse[None, :], -1.0e30), -1.0e30)


@triton.jit
def _counted(Lse, Real, row0, b, rows, T):
    """The rows' lse in units of log 2, and which count; the others get one so high that all their weights are 0."""
    lse = tl.load(Lse + row0 + rows, mask=rows < T, other=float("inf"))
    counts = (lse > -1.0e30) & (lse < 1.0e30)
    if Real is not None:
        counts = counts & (tl.load(Real + b * T + rows, mask=rows < T, other=0) != 0)
    return tl.where(counts, lse * 1.4426950408889634, 1.0e30), counts


@triton.jit
def _span(q0, sizes, rules, BM: tl.constexpr, CAUSAL: tl.constexpr):
    """The keys [low, high) that a block of queries may see at all."""
    low, high = 0, sizes.S
    last = tl.minimum(q0 + BM, sizes.T) - 1
    if CAUSAL:
        high = tl.maximum(tl.minimum(sizes.S, last + sizes.shift + 1), 0)
    if rules.window is not None:
        low = tl.maximum(q0 + sizes.shift - rules.window + 1, 0)
        high = tl.maximum(tl.minimum(high, last + sizes.shift + rules.window), 0)
    return low, high


@triton.jit
def _pair(x, BM: tl.constexpr):
    """The two keys, 8 apart, that one thread holds of each query."""
    return tl.split(tl.permute(tl.reshape(x, [4, 2, 8, BM]), [0, 2, 3, 1]))


@triton.jit
def _step(x, far, ps, pd, mx, where, start, BM: tl.constexpr):
    """Add one tile of log₂ weights to the sums over keys; returns the sums over queries."""
    p = tl.exp2(x)
    x0, x1 = _pair(x, BM)
    p0, p1 = _pair(p, BM)
    d0, d1 = _pair(far + tl.zeros_like(x), BM)
    ps += p0 * x0
    ps += p1 * x1
    pd += p0 * d0
    pd += p1 * d1
    here = tl.maximum(mx, tl.maximum(x0, x1))
    return ps, pd, here, tl.where(here > mx, start, where), tl.sum(p, axis=1)


@triton.jit
def _far(rows, cols, at, shift, CAUSAL: tl.constexpr):
    """The distances from queries to keys; under a causal mask, from the block's first query."""
    far = (at - cols).to(tl.float32)[:, None]
    if not CAUSAL:
        far = tl.abs((rows[None, :] + shift - cols[:, None]).to(tl.float32))
    return far


@triton.jit
def _receive(Received, cols, sums, S, TAIL: tl.constexpr):
    fixed = (sums * 1099511627776.0).to(tl.int64)
    if TAIL:
        tl.atomic_add(Received + cols, fixed, mask=cols < S, sem="relaxed")
    else:
        tl.atomic_add(Received + cols, fixed, sem="relaxed")


@triton.jit
def _queries(q, b, h, rows, d, T, D: tl.constexpr):
    """The queries of these rows; 0 outside."""
    place = q.data + b * q.batch + h * q.head + rows[:, None].to(tl.int64) * q.row + d[None, :]
    return tl.load(place, mask=(rows[:, None] < T) & (d[None, :] < D), other=0)


@triton.jit
def one_sweep(
    q, keys, scale2, sizes, rules, Lse, Real, Entropy, Distance, Largest, Folded, Received,
    D: tl.constexpr, DP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Entropy, distance, the largest weight and the first of the keys it may be on, and what keys receive.

    keys: a tensor descriptor. A thread holds two keys, 8 apart, of each query and keeps one maximum of both; Folded is
    the first of them, and `pick` finds out which of the two has the largest weight.
    """
    q0 = (tl.num_programs(1) - 1 - tl.program_id(1)) * BM  # the longest rows of all heads first
    b, h = (tl.program_id(0) // sizes.heads).to(tl.int64), (tl.program_id(0) % sizes.heads).to(tl.int64)
    g = (h // sizes.group).to(tl.int32)
    row0 = tl.program_id(0).to(tl.int64) * sizes.T
    rows = q0 + tl.arange(0, BM)
    qT = tl.trans(_queries(q, b, h, rows, tl.arange(0, DP), sizes.T, D))
    lse, _ = _counted(Lse, Real, row0, b, rows, sizes.T)
    kcols = tl.arange(0, BN)
    at = q0 + sizes.shift
    if Received is not None:
        Received += tl.program_id(0).to(tl.int64) * sizes.S

    ps = tl.zeros([4, 8, BM], tl.float32)
    pd = tl.zeros([4, 8, BM], tl.float32)
    mx = tl.full([4, 8, BM], -3.0e38, tl.float32)
    where = tl.zeros([4, 8, BM], tl.int32)

    low, high = _span(q0, sizes, rules, BM, CAUSAL)
    low = low // BN * BN
    free = low  # up to here nothing is hidden and nothing added
    hides: tl.constexpr = rules.window is not None or rules.keys is not None or rules.dense is not None
    adds: tl.constexpr = rules.bias is not None or rules.slopes is not None
    if not (hides or adds):
        free = sizes.S
        if CAUSAL:
            free = tl.minimum(at + 1, sizes.S)
        free = tl.maximum(free // BN * BN, low)
        for start in range(low, free, BN):
            cols = start + kcols
            k = keys.load([b.to(tl.int32), g, start, 0]).reshape(BN, DP)
            x = tl.dot(k, qT, input_precision=PRECISION) * scale2 - lse[None, :]
            far = _far(rows, cols, at, sizes.shift, CAUSAL)
            ps, pd, mx, where, sums = _step(x, far, ps, pd, mx, where, start, BM)
            if Received is not None:
                _receive(Received, cols, sums, sizes.S, False)
    for start in range(free, high, BN):
        cols = start + kcols
        k = keys.load([b.to(tl.int32), g, start, 0]).reshape(BN, DP)
        x = tl.dot(k, qT, input_precision=PRECISION) * scale2
        x = _tile(x, rows, cols, lse, b, h, sizes, rules, CAUSAL)
        far = _far(rows, cols, at, sizes.shift, CAUSAL)
        ps, pd, mx, where, sums = _step(x, far, ps, pd, mx, where, start, BM)
        if Received is not None:
            _receive(Received, cols, sums, sizes.S, True)

    # Reduce within a warp first, so that little is exchanged between warps.
    entropy = tl.abs(0.6931471805599453 * tl.sum(tl.sum(ps, axis=1), axis=0))  # rounding may leave it at −0
    distance = tl.sum(tl.sum(pd, axis=1), axis=0)
    if CAUSAL:
        distance += (rows - q0).to(tl.float32)
    m = tl.max(tl.max(mx, axis=1), axis=0)
    spot = where + (tl.arange(0, 4) * 16)[:, None, None] + tl.arange(0, 8)[None, :, None]
    key = tl.min(tl.min(tl.where(mx == m[None, None, :], spot, 2147483647), axis=1), axis=0)
    _, counts = _counted(Lse, Real, row0, b, rows, sizes.T)  # loaded again: registers are scarce in the loop
    nan = float("nan")
    there = rows < sizes.T
    tl.store(Entropy + row0 + rows, tl.where(counts, entropy, nan), mask=there)
    tl.store(Distance + row0 + rows, tl.where(counts, distance, nan), mask=there)
    tl.store(Largest + row0 + rows, tl.where(counts, tl.exp2(m), nan), mask=there)
    tl.store(Folded + row0 + rows, key, mask=there)


@triton.jit
def pick(
    q, k, scale2, sizes, rules, Lse, Real, First, Earlier, Folded, Key, Known, Chosen, Received, Sums,
    TARGETS: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, BM: tl.constexpr, U: tl.constexpr,
    CAUSAL: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Single weights: on the target keys of each query, and on the keys among which the largest weight is.

    TARGETS: for each target a pair (start, step); the key is the start moved by the step. Starts: 0 is the first key,
    1 the query's own position, 2 the earlier occurrence of its token. A key before the first or after the last gives
    NaN. The largest weight is on a key of `Folded`, or 8 further on, of one of U tiles of 64. Sums: what keys received,
    as floats.
    """
    b, h = (tl.program_id(1) // sizes.heads).to(tl.int64), (tl.program_id(1) % sizes.heads).to(tl.int64)
    keys = k.data + b * k.batch + (h // sizes.group) * k.head
    row0 = tl.program_id(1).to(tl.int64) * sizes.T
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, DP)
    there = rows < sizes.T
    qf = _queries(q, b, h, rows, d, sizes.T, D).to(tl.float32)
    lse, counts = _counted(Lse, Real, row0, b, rows, sizes.T)
    nan = float("nan")
    tl.store(Known + row0 + rows, tl.where(counts, lse * 0.6931471805599453, nan), mask=there)
    first = 0
    if First is not None:
        first = tl.load(First + b)
    for n in tl.static_range(len(TARGETS)):
        if TARGETS[n][0] == 0:
            j = tl.zeros([BM], tl.int32) + first
        elif TARGETS[n][0] == 1:
            j = rows + sizes.shift
        else:
            j = tl.load(Earlier + b * sizes.T + rows, mask=there, other=-1)
        j += TARGETS[n][1]
        x = _score(qf, keys, k.row, scale2, d, j, rows, lse, b, h, sizes, rules, D, CAUSAL)
        exists = (j >= first) & (j < sizes.S)
        place = Chosen + (n * tl.num_programs(1)).to(tl.int64) * sizes.T + row0 + rows
        tl.store(place, tl.where(counts & exists, tl.exp2(x), nan), mask=there)
    if EARLY:  # nothing so far depends on the sweep, which may still be running
        tl.extra.cuda.gdc_wait()
    start = tl.load(Folded + row0 + rows, mask=there, other=0)
    most = tl.full([BM], -3.0e38, tl.float32)
    key = start
    for f in tl.static_range(2 * U):
        j = start + f // 2 * 64 + f % 2 * 8
        x = _score(qf, keys, k.row, scale2, d, j, rows, lse, b, h, sizes, rules, D, CAUSAL)
        key = tl.where(x > most, j, key)
        most = tl.maximum(x, most)
    tl.store(Key + row0 + rows, tl.where(counts, key, -1).to(tl.int64), mask=there)
    if Sums is not None:
        col0 = tl.program_id(1).to(tl.int64) * sizes.S
        for c in range(tl.program_id(0) * 128, sizes.S, tl.num_programs(0) * 128):
            cols = c + tl.arange(0, 128)
            inside = cols < sizes.S
            sums = tl.load(Received + col0 + cols, mask=inside, other=0).to(tl.float32) * (1 / 1099511627776.0)
            tl.store(Sums + col0 + cols, sums, mask=inside)


@triton.jit
def _score(qf, keys, stride, scale2, d, j, rows, lse, b, h, sizes, rules, D: tl.constexpr, CAUSAL: tl.constexpr):
    """log₂ of the weight of each query on one key of its own, j; j out of range has none."""
    seen = _allowed(rows, j, (j >= 0) & (j < sizes.S) & (rows < sizes.T), b, h, sizes, rules, CAUSAL)
    k = tl.load(keys + j[:, None].to(tl.int64) * stride + d[None, :], mask=seen[:, None] & (d[None, :] < D), other=0)
    x = _added(tl.sum(qf * k.to(tl.float32), axis=1) * scale2, rows, j, seen, b, h, sizes, rules)
    return tl.where(seen, tl.maximum(x - lse, -1.0e30), -1.0e30)


@triton.jit
def log_sums(
    q, k, scale2, sizes, rules, Lse,
    D: tl.constexpr, DP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """log Σ exp(scores), for attention kernels that do not return it; −∞ where nothing is seen."""
    q0 = (tl.num_programs(1) - 1 - tl.program_id(1)) * BM
    b, h = (tl.program_id(0) // sizes.heads).to(tl.int64), (tl.program_id(0) % sizes.heads).to(tl.int64)
    keys = k.data + b * k.batch + (h // sizes.group) * k.head
    rows, d, kcols = q0 + tl.arange(0, BM), tl.arange(0, DP), tl.arange(0, BN)
    qT = tl.trans(_queries(q, b, h, rows, d, sizes.T, D))
    zero = tl.zeros([BM], tl.float32)
    most = tl.full([BM], -1.0e30, tl.float32)
    total = tl.zeros([BM], tl.float32)
    low, high = _span(q0, sizes, rules, BM, CAUSAL)
    for start in range(low // BN * BN, high, BN):
        cols = start + kcols
        inside = (cols[:, None] < sizes.S) & (d[None, :] < D)
        tile = tl.load(keys + cols[:, None].to(tl.int64) * k.row + d[None, :], mask=inside, other=0)
        x = tl.dot(tile, qT, input_precision=PRECISION) * scale2
        x = _tile(x, rows, cols, zero, b, h, sizes, rules, CAUSAL)
        new = tl.maximum(most, tl.max(x, axis=0))
        here = tl.sum(tl.where(x > -1.0e29, tl.exp2(x - new[None, :]), 0.0), axis=0)
        total = total * tl.exp2(most - new) + here
        most = new
    lse = tl.where(total > 0, (most + tl.log2(tl.maximum(total, 1.0e-37))) * 0.6931471805599453, -float("inf"))
    tl.store(Lse + tl.program_id(0).to(tl.int64) * sizes.T + rows, lse, mask=rows < sizes.T)

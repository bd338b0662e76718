"""The statistics of every head in one pass over the keys, in Triton: linear memory, fp32 sums, the same bits each time.

A program holds a block of queries and walks over the keys. Tiles of scores lie transposed, keys by queries: sums over
queries (what a key receives) then stay within a few threads, and sums over keys (what a query does) are kept element
by element and added up once, at the end. Sums over programs are whole numbers of 2⁻⁴⁰, whose order does not matter.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _allowed(
    rows, cols, b, h, T, S, shift, window, Keys, Dense, db, dh, dt, ds,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, KEYS: tl.constexpr, DENSE: tl.constexpr,
):  # fmt: skip
    """May these queries (along axis 1) see these keys (along axis 0)?"""
    at = rows[None, :] + shift
    seen = (cols[:, None] < S) & (rows[None, :] < T)
    if CAUSAL:
        seen = seen & (cols[:, None] <= at)
    if WINDOW:
        seen = seen & (at - cols[:, None] < window) & (cols[:, None] - at < window)
    if KEYS:
        seen = seen & (tl.load(Keys + b * S + cols, mask=cols < S, other=0) != 0)[:, None]
    if DENSE:
        place = Dense + b * db + h * dh + rows[None, :].to(tl.int64) * dt + cols[:, None].to(tl.int64) * ds
        seen = seen & (tl.load(place, mask=seen, other=0) != 0)
    return seen


@triton.jit
def _added(x, rows, cols, b, h, shift, seen, Bias, bb, bh, bt, bs, Slopes, BIAS: tl.constexpr, ALIBI: tl.constexpr):
    """Scores in units of log 2, with what is added to them."""
    if BIAS:
        place = Bias + b * bb + h * bh + rows[None, :].to(tl.int64) * bt + cols[:, None].to(tl.int64) * bs
        x += tl.load(place, mask=seen, other=0).to(tl.float32) * 1.4426950408889634
    if ALIBI:
        far = tl.abs((rows[None, :] + shift - cols[:, None]).to(tl.float32))
        x -= tl.load(Slopes + h).to(tl.float32) * 1.4426950408889634 * far
    return x


@triton.jit
def _tile(
    x, rows, cols, lse, b, h, T, S, shift, window, Keys, Dense, db, dh, dt, ds, Bias, bb, bh, bt, bs, Slopes,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, KEYS: tl.constexpr, DENSE: tl.constexpr, BIAS: tl.constexpr,
    ALIBI: tl.constexpr,
):  # fmt: skip
    """log₂ of the weights of one tile, where something may be hidden or added."""
    seen = _allowed(
        rows, cols, b, h, T, S, shift, window, Keys, Dense, db, dh, dt, ds, CAUSAL, WINDOW, KEYS, DENSE
    )  # fmt: skip
    x = _added(x, rows, cols, b, h, shift, seen, Bias, bb, bh, bt, bs, Slopes, BIAS, ALIBI)
    return tl.where(seen, tl.maximum(x - lse[None, :], -1.0e30), -1.0e30)


@triton.jit
def _counted(Lse, Real, row0, b, rows, T, REAL: tl.constexpr):
    """The rows' lse in units of log 2, and which count; the others get one so high that all their weights are 0."""
    lse = tl.load(Lse + row0 + rows, mask=rows < T, other=float("inf"))
    counts = (lse > -1.0e30) & (lse < 1.0e30)
    if REAL:
        counts = counts & (tl.load(Real + b * T + rows, mask=rows < T, other=0) != 0)
    return tl.where(counts, lse * 1.4426950408889634, 1.0e30), counts


@triton.jit
def _span(q0, T, S, shift, window, BM: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr):
    """The keys [low, high) that a block of queries may see at all."""
    low, high = 0, S
    last = tl.minimum(q0 + BM, T) - 1
    if CAUSAL:
        high = tl.maximum(tl.minimum(S, last + shift + 1), 0)
    if WINDOW:
        low = tl.maximum(q0 + shift - window + 1, 0)
        high = tl.maximum(tl.minimum(high, last + shift + window), 0)
    return low, high


@triton.jit
def _pair(x, BM: tl.constexpr):
    """The two keys, 8 apart, that one thread holds of each query."""
    return tl.split(tl.permute(tl.reshape(x, [4, 2, 8, BM]), [0, 2, 3, 1]))


@triton.jit
def _step(x, far, ps, pd, mx, where, start, BM: tl.constexpr):
    """Take one tile of log₂ weights into the sums over keys; hand back the sums over queries."""
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
    """How far the keys are from the queries; from the block's first query where that leaves no question of sign."""
    far = (at - cols).to(tl.float32)[:, None]
    if not CAUSAL:
        far = tl.abs((rows[None, :] + shift - cols[:, None]).to(tl.float32))
    return far


@triton.jit
def _receive(Received, cols, sums, S, TAIL: tl.constexpr):
    whole = (sums * 1099511627776.0).to(tl.int64)
    if TAIL:
        tl.atomic_add(Received + cols, whole, mask=cols < S, sem="relaxed")
    else:
        tl.atomic_add(Received + cols, whole, sem="relaxed")


@triton.jit
def one_sweep(
    Q, qb, qh, qt, Kd, Lse, Real, Entropy, Distance, Largest, Key, Received,
    Keys, Dense, db, dh, dt, ds, Bias, bb, bh, bt, bs, Slopes,
    H, group, T, S, shift, window, scale2,
    D: tl.constexpr, DP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, KEYS: tl.constexpr, DENSE: tl.constexpr, BIAS: tl.constexpr,
    ALIBI: tl.constexpr, PRECISION: tl.constexpr, COLUMNS: tl.constexpr, REAL: tl.constexpr,
):  # fmt: skip
    q0 = (tl.num_programs(1) - 1 - tl.program_id(1)) * BM  # the longest first, of all heads
    b, h = (tl.program_id(0) // H).to(tl.int64), (tl.program_id(0) % H).to(tl.int64)
    g = (h // group).to(tl.int32)
    Q += b * qb + h * qh
    row0 = tl.program_id(0).to(tl.int64) * T
    Received += tl.program_id(0).to(tl.int64) * S
    rows = q0 + tl.arange(0, BM)
    d = tl.arange(0, DP)
    q = tl.load(Q + rows[:, None].to(tl.int64) * qt + d[None, :], mask=(rows[:, None] < T) & (d[None, :] < D), other=0)
    lse, _ = _counted(Lse, Real, row0, b, rows, T, REAL)
    qT = tl.trans(q)
    kcols = tl.arange(0, BN)
    at = q0 + shift

    ps = tl.zeros([4, 8, BM], tl.float32)
    pd = tl.zeros([4, 8, BM], tl.float32)
    mx = tl.full([4, 8, BM], -3.0e38, tl.float32)
    where = tl.zeros([4, 8, BM], tl.int32)

    low, high = _span(q0, T, S, shift, window, BM, CAUSAL, WINDOW)
    low = low // BN * BN
    plain: tl.constexpr = not (WINDOW or KEYS or DENSE or BIAS or ALIBI)
    free = low  # up to here nothing is hidden and nothing added
    if plain:
        free = S
        if CAUSAL:
            free = tl.minimum(at + 1, S)
        free = tl.maximum(free // BN * BN, low)
        for start in range(low, free, BN):
            cols = start + kcols
            k = Kd.load([b.to(tl.int32), g, start, 0]).reshape(BN, DP)
            x = tl.dot(k, qT, input_precision=PRECISION) * scale2 - lse[None, :]
            ps, pd, mx, where, sums = _step(
                x, _far(rows, cols, at, shift, CAUSAL), ps, pd, mx, where, start, BM
            )  # fmt: skip
            if COLUMNS:
                _receive(Received, cols, sums, S, False)
    for start in range(free, high, BN):
        cols = start + kcols
        k = Kd.load([b.to(tl.int32), g, start, 0]).reshape(BN, DP)
        x = tl.dot(k, qT, input_precision=PRECISION) * scale2
        x = _tile(
            x, rows, cols, lse, b, h, T, S, shift, window, Keys, Dense, db, dh, dt, ds, Bias, bb, bh, bt, bs,
            Slopes, CAUSAL, WINDOW, KEYS, DENSE, BIAS, ALIBI,
        )  # fmt: skip
        ps, pd, mx, where, sums = _step(x, _far(rows, cols, at, shift, CAUSAL), ps, pd, mx, where, start, BM)
        if COLUMNS:
            _receive(Received, cols, sums, S, True)

    # Within a warp first, so that little is left for the warps to tell one another.
    entropy = tl.abs(0.6931471805599453 * tl.sum(tl.sum(ps, axis=1), axis=0))  # rounding may leave it at −0
    distance = tl.sum(tl.sum(pd, axis=1), axis=0)
    if CAUSAL:
        distance += (rows - q0).to(tl.float32)
    m = tl.max(tl.max(mx, axis=1), axis=0)
    spot = where + (tl.arange(0, 4) * 16)[:, None, None] + tl.arange(0, 8)[None, :, None]
    key = tl.min(tl.min(tl.where(mx == m[None, None, :], spot, 2147483647), axis=1), axis=0)
    _, counts = _counted(Lse, Real, row0, b, rows, T, REAL)  # asked again: registers are scarce in the loop
    nothing = float("nan")
    tl.store(Entropy + row0 + rows, tl.where(counts, entropy, nothing), mask=rows < T)
    tl.store(Distance + row0 + rows, tl.where(counts, distance, nothing), mask=rows < T)
    tl.store(Largest + row0 + rows, tl.where(counts, tl.exp2(m), nothing), mask=rows < T)
    tl.store(Key + row0 + rows, key, mask=rows < T)


@triton.jit
def pick(
    Q, qb, qh, qt, K, kb, kh, ks, Lse, Real, First, Last, Folded, Key, Known, Chosen, Received, Sums,
    Keys, Dense, db, dh, dt, ds, Bias, bb, bh, bt, bs, Slopes,
    H, group, T, S, shift, window, scale2,
    D: tl.constexpr, DP: tl.constexpr, BM: tl.constexpr, U: tl.constexpr, N: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, KEYS: tl.constexpr, DENSE: tl.constexpr, BIAS: tl.constexpr,
    ALIBI: tl.constexpr, PRECISION: tl.constexpr, REAL: tl.constexpr, FIRST: tl.constexpr, EARLY: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    """Single weights: on one chosen key a query, and which of the keys that were folded together is the largest.

    Chosen are the first key, the previous, the query's own; where N is 5, the last occurrence of its token and the next.
    Folded together are a key and the one 8 further on, of U tiles of 64. At the end, what keys received as numbers.
    """
    b, h = (tl.program_id(1) // H).to(tl.int64), (tl.program_id(1) % H).to(tl.int64)
    Q += b * qb + h * qh
    K += b * kb + (h // group) * kh
    row0 = tl.program_id(1).to(tl.int64) * T
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, DP)
    q = tl.load(Q + rows[:, None].to(tl.int64) * qt + d[None, :], mask=(rows[:, None] < T) & (d[None, :] < D), other=0)
    lse, counts = _counted(Lse, Real, row0, b, rows, T, REAL)
    nothing = float("nan")
    tl.store(Known + row0 + rows, tl.where(counts, lse * 0.6931471805599453, nothing), mask=rows < T)
    qf = q.to(tl.float32)
    first = 0
    if FIRST:
        first = tl.load(First + b)
    for n in tl.static_range(N):
        if n == 0:
            j = tl.zeros([BM], tl.int32) + first
        elif n < 3:
            j = rows + shift + (n - 2)
        else:
            j = tl.load(Last + b * T + rows, mask=rows < T, other=-1)
        there = j >= first
        if n == 4:
            j += 1
        x = _score(qf, K, ks, d, j, rows, lse, b, h, T, S, shift, window, Keys, Dense, db, dh, dt, ds, Bias, bb, bh, bt,
                   bs, Slopes, scale2, D, CAUSAL, WINDOW, KEYS, DENSE, BIAS, ALIBI)  # fmt: skip
        place = Chosen + (n * tl.num_programs(1)).to(tl.int64) * T + row0 + rows
        tl.store(place, tl.where(counts & there, tl.exp2(x), nothing), mask=rows < T)
    if EARLY:  # so far nothing was needed of the sweep, which may not be over
        tl.extra.cuda.gdc_wait()
    start = tl.load(Folded + row0 + rows, mask=rows < T, other=0)
    most = tl.full([BM], -3.0e38, tl.float32)
    key = start
    for f in tl.static_range(2 * U):
        j = start + f // 2 * 64 + f % 2 * 8
        x = _score(qf, K, ks, d, j, rows, lse, b, h, T, S, shift, window, Keys, Dense, db, dh, dt, ds, Bias, bb, bh, bt,
                   bs, Slopes, scale2, D, CAUSAL, WINDOW, KEYS, DENSE, BIAS, ALIBI)  # fmt: skip
        key = tl.where(x > most, j, key)
        most = tl.maximum(x, most)
    tl.store(Key + row0 + rows, tl.where(counts, key, -1).to(tl.int64), mask=rows < T)
    if COLUMNS:
        col0 = tl.program_id(1).to(tl.int64) * S
        for c in range(tl.program_id(0) * 128, S, tl.num_programs(0) * 128):
            cols = c + tl.arange(0, 128)
            sums = tl.load(Received + col0 + cols, mask=cols < S, other=0).to(tl.float32) * (1 / 1099511627776.0)
            tl.store(Sums + col0 + cols, sums, mask=cols < S)


@triton.jit
def _score(
    qf, K, ks, d, j, rows, lse, b, h, T, S, shift, window, Keys, Dense, db, dh, dt, ds, Bias, bb, bh, bt, bs, Slopes,
    scale2, D: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, KEYS: tl.constexpr, DENSE: tl.constexpr,
    BIAS: tl.constexpr, ALIBI: tl.constexpr,
):  # fmt: skip
    """log₂ of the weight of each query on one key of its own, j; j out of range has none."""
    seen = (j >= 0) & (j < S) & (rows < T)
    at = rows + shift
    if CAUSAL:
        seen = seen & (j <= at)
    if WINDOW:
        seen = seen & (at - j < window) & (j - at < window)
    if KEYS:
        seen = seen & (tl.load(Keys + b * S + j, mask=seen, other=0) != 0)
    if DENSE:
        place = Dense + b * db + h * dh + rows.to(tl.int64) * dt + j.to(tl.int64) * ds
        seen = seen & (tl.load(place, mask=seen, other=0) != 0)
    k = tl.load(K + j[:, None].to(tl.int64) * ks + d[None, :], mask=seen[:, None] & (d[None, :] < D), other=0)
    x = tl.sum(qf * k.to(tl.float32), axis=1) * scale2
    if BIAS:
        place = Bias + b * bb + h * bh + rows.to(tl.int64) * bt + j.to(tl.int64) * bs
        x += tl.load(place, mask=seen, other=0).to(tl.float32) * 1.4426950408889634
    if ALIBI:
        x -= tl.load(Slopes + h).to(tl.float32) * 1.4426950408889634 * tl.abs((at - j).to(tl.float32))
    return tl.where(seen, tl.maximum(x - lse, -1.0e30), -1.0e30)


@triton.jit
def log_sums(
    Q, qb, qh, qt, K, kb, kh, ks, Lse, Keys, Dense, db, dh, dt, ds, Bias, bb, bh, bt, bs, Slopes,
    H, group, T, S, shift, window, scale2,
    D: tl.constexpr, DP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, KEYS: tl.constexpr, DENSE: tl.constexpr, BIAS: tl.constexpr,
    ALIBI: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """log Σ exp(scores), for kernels that do not hand it out; −∞ where nothing is seen."""
    q0 = (tl.num_programs(1) - 1 - tl.program_id(1)) * BM
    b, h = (tl.program_id(0) // H).to(tl.int64), (tl.program_id(0) % H).to(tl.int64)
    Q += b * qb + h * qh
    K += b * kb + (h // group) * kh
    rows, d, kcols = q0 + tl.arange(0, BM), tl.arange(0, DP), tl.arange(0, BN)
    q = tl.load(Q + rows[:, None].to(tl.int64) * qt + d[None, :], mask=(rows[:, None] < T) & (d[None, :] < D), other=0)
    qT = tl.trans(q)
    zero = tl.zeros([BM], tl.float32)
    most = tl.full([BM], -1.0e30, tl.float32)
    total = tl.zeros([BM], tl.float32)
    low, high = _span(q0, T, S, shift, window, BM, CAUSAL, WINDOW)
    for start in range(low // BN * BN, high, BN):
        cols = start + kcols
        k = tl.load(
            K + cols[:, None].to(tl.int64) * ks + d[None, :], mask=(cols[:, None] < S) & (d[None, :] < D), other=0
        )
        x = tl.dot(k, qT, input_precision=PRECISION) * scale2
        x = _tile(
            x, rows, cols, zero, b, h, T, S, shift, window, Keys, Dense, db, dh, dt, ds, Bias, bb, bh, bt, bs, Slopes,
            CAUSAL, WINDOW, KEYS, DENSE, BIAS, ALIBI,
        )  # fmt: skip
        new = tl.maximum(most, tl.max(x, axis=0))
        here = tl.sum(tl.where(x > -1.0e29, tl.exp2(x - new[None, :]), 0.0), axis=0)
        total = total * tl.exp2(most - new) + here
        most = new
    found = tl.where(total > 0, (most + tl.log2(tl.maximum(total, 1.0e-37))) * 0.6931471805599453, -float("inf"))
    tl.store(Lse + tl.program_id(0).to(tl.int64) * T + rows, found, mask=rows < T)

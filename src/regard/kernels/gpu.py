"""The statistics of every head in one pass over the keys, in Triton: linear memory, fp32 sums, the same bits each time.

A program holds a block of queries and walks over the keys. Tiles of scores lie transposed, keys by queries: sums over
queries (what a key receives) then stay within a few threads, and sums over keys (what a query does) are kept element
by element and added up once, at the end. Sums over programs are whole numbers of 2⁻⁴⁰, whose order does not matter.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from regard.kernels.rule import Rule

LOG2E = 1.4426950408889634
FIXED = 1 << 40  # what a key receives is summed in whole 2⁻⁴⁰


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
def _fold(x, BM: tl.constexpr):
    """The larger of the two keys, 8 apart, that one thread holds of each query."""
    return tl.max(tl.reshape(x, [4, 2, 8, BM]), axis=1)


@triton.jit
def _step(x, ps, pd, rows, cols, at0, shift, CAUSAL: tl.constexpr):
    """Take one tile of log₂ weights into the sums over keys; hand back the sums over queries."""
    p = tl.exp2(x)
    ps += p * x
    if CAUSAL:
        pd += p * (at0 - cols).to(tl.float32)[:, None]
    else:
        pd += p * tl.abs((rows[None, :] + shift - cols[:, None]).to(tl.float32))
    return ps, pd, tl.sum(p, axis=1)


@triton.jit
def _receive(Received, cols, sums, S, TAIL: tl.constexpr):
    whole = (sums * 1099511627776.0).to(tl.int64)
    if TAIL:
        tl.atomic_add(Received + cols, whole, mask=cols < S, sem="relaxed")
    else:
        tl.atomic_add(Received + cols, whole, sem="relaxed")


@triton.jit
def _one_pass(
    Q, qb, qh, qt, K, Kd, kb, kh, ks, Lse, Targets, Entropy, Distance, Largest, Key, Chosen, Received,
    Keys, Dense, db, dh, dt, ds, Bias, bb, bh, bt, bs, Slopes,
    H, group, T, S, shift, window, scale2,
    D: tl.constexpr, DP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, U: tl.constexpr, N: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, KEYS: tl.constexpr, DENSE: tl.constexpr, BIAS: tl.constexpr,
    ALIBI: tl.constexpr, PRECISION: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    q0 = (tl.num_programs(0) - 1 - tl.program_id(0)) * BM  # the longest first
    b, h = tl.program_id(1) // H, tl.program_id(1) % H
    g = h // group
    Q += b.to(tl.int64) * qb + h.to(tl.int64) * qh
    K += b.to(tl.int64) * kb + g.to(tl.int64) * kh
    row0 = tl.program_id(1).to(tl.int64) * T
    Received += tl.program_id(1).to(tl.int64) * S
    rows = q0 + tl.arange(0, BM)
    d = tl.arange(0, DP)
    q = tl.load(Q + rows[:, None].to(tl.int64) * qt + d[None, :], mask=(rows[:, None] < T) & (d[None, :] < D), other=0)
    lse = tl.minimum(tl.load(Lse + row0 + rows, mask=rows < T, other=1.0e30) * 1.4426950408889634, 1.0e30)
    qT = tl.trans(q)
    kcols = tl.arange(0, BN)
    at0 = q0 + shift

    ps = tl.zeros([BN, BM], tl.float32)
    pd = tl.zeros([BN, BM], tl.float32)
    mx = tl.full([4, 8, BM], -3.0e38, tl.float32)
    where = tl.zeros([4, 8, BM], tl.int32)

    low, high = _span(q0, T, S, shift, window, BM, CAUSAL, WINDOW)
    low = low // (U * BN) * (U * BN)
    plain: tl.constexpr = not (WINDOW or KEYS or DENSE or BIAS or ALIBI)
    free = low  # up to here nothing is hidden and nothing added
    if plain:
        free = S
        if CAUSAL:
            free = tl.minimum(at0 + 1, S)
        free = tl.maximum(free // (U * BN) * (U * BN), low)
        for start in range(low, free, U * BN):
            cols = start + kcols
            k = Kd.load([b, g, start, 0]).reshape(BN, DP)
            x = tl.dot(k, qT, input_precision=PRECISION) * scale2 - lse[None, :]
            here = tl.maximum(mx, _fold(x, BM))
            ps, pd, sums = _step(x, ps, pd, rows, cols, at0, shift, CAUSAL)
            if U == 2:
                k = Kd.load([b, g, start + BN, 0]).reshape(BN, DP)
                x = tl.dot(k, qT, input_precision=PRECISION) * scale2 - lse[None, :]
                here = tl.maximum(here, _fold(x, BM))
                ps, pd, more = _step(x, ps, pd, rows, cols + BN, at0, shift, CAUSAL)
                if COLUMNS:
                    both = cols[:, None] + (tl.arange(0, 2) * BN)[None, :]
                    _receive(Received, both, tl.join(sums, more), S, False)
            elif COLUMNS:
                _receive(Received, cols, sums, S, False)
            where = tl.where(here > mx, start, where)
            mx = here
    for start in range(free, high, BN):
        cols = start + kcols
        k = Kd.load([b, g, start, 0]).reshape(BN, DP)
        x = tl.dot(k, qT, input_precision=PRECISION) * scale2
        x = _tile(
            x, rows, cols, lse, b, h, T, S, shift, window, Keys, Dense, db, dh, dt, ds, Bias, bb, bh, bt, bs,
            Slopes, CAUSAL, WINDOW, KEYS, DENSE, BIAS, ALIBI,
        )  # fmt: skip
        here = tl.maximum(mx, _fold(x, BM))
        ps, pd, sums = _step(x, ps, pd, rows, cols, at0, shift, CAUSAL)
        if COLUMNS:
            _receive(Received, cols, sums, S, True)
        where = tl.where(here > mx, start, where)
        mx = here

    entropy = -0.6931471805599453 * tl.sum(ps, axis=0)
    distance = tl.sum(pd, axis=0)
    if CAUSAL:
        distance += (rows - q0).to(tl.float32)
    m = tl.max(tl.max(mx, axis=0), axis=0)
    spot = where + (tl.arange(0, 4) * 16)[:, None, None] + tl.arange(0, 8)[None, :, None]
    key = tl.min(tl.min(tl.where(mx == m[None, None, :], spot, 2147483647), axis=0), axis=0)
    tl.store(Entropy + row0 + rows, entropy, mask=rows < T)
    tl.store(Distance + row0 + rows, distance, mask=rows < T)
    tl.store(Largest + row0 + rows, tl.exp2(m), mask=rows < T)

    qf = q.to(tl.float32)
    most = tl.full([BM], -3.0e38, tl.float32)
    first = key
    for f in tl.static_range(2 * U):  # the largest is one of the keys that were folded together: look which
        j = first + f // 2 * 64 + f % 2 * 8
        x = _score(qf, K, ks, d, j, rows, lse, b, h, T, S, shift, window, Keys, Dense, db, dh, dt, ds, Bias, bb, bh, bt,
                   bs, Slopes, scale2, D, CAUSAL, WINDOW, KEYS, DENSE, BIAS, ALIBI)  # fmt: skip
        key = tl.where(x > most, j, key)
        most = tl.maximum(x, most)
    tl.store(Key + row0 + rows, key, mask=rows < T)
    for n in tl.static_range(N):  # the weight on one chosen key a query
        j = tl.load(Targets + (n * (tl.num_programs(1) // H) + b).to(tl.int64) * T + rows, mask=rows < T, other=-1)
        x = _score(qf, K, ks, d, j, rows, lse, b, h, T, S, shift, window, Keys, Dense, db, dh, dt, ds, Bias, bb, bh, bt,
                   bs, Slopes, scale2, D, CAUSAL, WINDOW, KEYS, DENSE, BIAS, ALIBI)  # fmt: skip
        place = Chosen + (n * tl.num_programs(1)).to(tl.int64) * T + row0 + rows
        tl.store(place, tl.exp2(x), mask=rows < T)


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
def _logsumexp(
    Q, qb, qh, qt, K, kb, kh, ks, Lse, Keys, Dense, db, dh, dt, ds, Bias, bb, bh, bt, bs, Slopes,
    H, group, T, S, shift, window, scale2,
    D: tl.constexpr, DP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, KEYS: tl.constexpr, DENSE: tl.constexpr, BIAS: tl.constexpr,
    ALIBI: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """log Σ exp(scores), for kernels that do not hand it out; −∞ where nothing is seen."""
    q0 = (tl.num_programs(0) - 1 - tl.program_id(0)) * BM
    b, h = tl.program_id(1) // H, tl.program_id(1) % H
    Q += b.to(tl.int64) * qb + h.to(tl.int64) * qh
    K += b.to(tl.int64) * kb + (h // group).to(tl.int64) * kh
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
    tl.store(Lse + tl.program_id(1).to(tl.int64) * T + rows, found, mask=rows < T)


def logsumexp(q: Tensor, k: Tensor, scale: float, rule: Rule) -> Tensor:
    """log Σ exp(scores), (B, H, T); −∞ where a query sees nothing."""
    B, H, T, _ = q.shape
    lse = torch.empty(B, H, T, device=q.device, dtype=torch.float32)
    BM, BN = 64, 64
    _logsumexp[(triton.cdiv(T, BM), B * H)](
        *_placed(q), *_placed(k), lse, *_ruled(rule, q), *_sized(q, k, rule, scale),
        BM=BM, BN=BN, **_known(rule, q), num_warps=4, num_stages=2,
    )  # fmt: skip
    return lse


def one_pass(
    q: Tensor, k: Tensor, scale: float, rule: Rule, lse: Tensor, targets: Tensor, received: Tensor | None,
    BM: int | None = None, U: int | None = None, maxnreg: int | None = None,
) -> dict[str, Tensor]:  # fmt: skip
    """Entropy, distance, the largest weight and its key, the weights on chosen keys; and add up what keys receive.

    lse: (B, H, T); +∞ for queries that shall not count. targets: (N, B, T) int32, −1 for none.
    received: (B, H, S) int64 in units of 1 / FIXED, added to.
    """
    B, H, T, D = q.shape
    N = targets.shape[0]
    if BM is None or U is None:
        BM, U, maxnreg = (64, 1, 168) if D > 64 else (32, 2, 128) if T < 8192 else (64, 2, 208)  # measured on an H200
    new: Any = {"device": q.device, "dtype": torch.float32}
    entropy, distance, largest = (torch.empty(B, H, T, **new) for _ in range(3))
    key = torch.empty(B, H, T, device=q.device, dtype=torch.int32)
    chosen = torch.empty(N, B, H, T, **new)
    _one_pass[(triton.cdiv(T, BM), B * H)](
        *_placed(q), k, _described(k, 64), *_placed(k)[1:], lse, targets, entropy, distance, largest, key, chosen,
        key if received is None else received, *_ruled(rule, q), *_sized(q, k, rule, scale),
        BM=BM, BN=64, U=U, N=N, **_known(rule, q), COLUMNS=received is not None,
        num_warps=4, num_stages=3, maxnreg=maxnreg,
    )  # fmt: skip
    return {"entropy": entropy, "distance": distance, "largest": largest, "largest_key": key, "chosen": chosen}


def ready(t: Tensor) -> Tensor:
    """The tensor as the copy engine wants it: channels side by side, rows and heads on multiples of 16 bytes."""
    if t.dtype is torch.float64 or not t.is_cuda:  # Triton's interpreter knows no product of 16-bit numbers
        t = t.float()
    step = 16 // t.element_size()
    if t.stride(3) == 1 and t.data_ptr() % 16 == 0 and all(n % step == 0 and n > 0 for n in t.stride()[:3]):
        return t
    wide = -t.shape[3] % step
    return torch.nn.functional.pad(t, (0, wide)).contiguous()


def whole(received: Tensor) -> Tensor:
    """What keys received, from units of 1 / FIXED."""
    return (received.double() / FIXED).float()


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

"""One token more, in Triton: the programs that a model of ours runs for each new token.

A new token is one row, and all the time goes into reading the weights. So each program reads its weights first, waits
for the row that the program before it is still making, and does everything to that row on the way: norm, product,
bias, bend, residual. `linear_one` serves every linear layer of one row, `normed` and `linear_some` those of several,
`attend_one` the attention; `embed` picks the next token and looks its vector up.

EARLY: on Hopper and later a program may start before the one it depends on has ended (programmatic dependent launch):
weights, and the keys of earlier tokens, are then read ahead of the wait.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _bent(y, gate, ACT: tl.constexpr):
    """The bend of a feed-forward: gelu in its tanh form, or silu(gate) · y."""
    if ACT == "gelu":
        inner = 0.7978845608028654 * (y + 0.044715 * y * y * y)
        y = y * tl.sigmoid(2.0 * inner)  # (1 + tanh(z)) / 2 = sigmoid(2z)
    elif ACT == "swiglu":
        y = gate * tl.sigmoid(gate) * y
    return y


@triton.jit
def _begin(EARLY: tl.constexpr):
    """Let the next program start: what it can read ahead of its wait, it reads while this one works."""
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def _wait(EARLY: tl.constexpr):
    """From here on, everything that earlier programs wrote is there."""
    if EARLY:
        tl.extra.cuda.gdc_wait()


@triton.jit
def _two_sums(a, b, c, d):
    return a + c, b + d


@triton.jit
def _normal(x, first, there, norm_w, norm_b, eps, K: tl.constexpr, NORM: tl.constexpr, NORM_BIAS: tl.constexpr):
    """LayerNorm or RMSNorm of a row, in one pass.

    Sums are taken around the row's `first` number, so that they keep their digits where all of the row is far from 0.
    """
    if NORM == "layer":
        x = tl.where(there, x - first, 0.0)
        total, squares = tl.reduce((x, x * x), 0, _two_sums)
        x = (x - total / K) * tl.rsqrt(tl.maximum(squares / K - (total / K) * (total / K), 0.0) + eps) * norm_w
    else:
        x = x * tl.rsqrt(tl.sum(x * x) / K + eps) * norm_w
    if NORM_BIAS:
        x += norm_b
    return x


@triton.jit
def linear_one(
    X, W, Gate, Bias, GateBias, NormW, NormB, Out, Best, At, N, eps,
    K: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, NORM: tl.constexpr, NORM_BIAS: tl.constexpr,
    ACT: tl.constexpr, BIAS: tl.constexpr, ADD: tl.constexpr, BEST: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """out = act(norm(x) · Wᵀ + bias), for one row x. A program goes over blocks of BN outputs, all of K at once.

    ADD: added to what Out holds (a residual). BEST: only the largest output of a program is kept, and where it was.
    """
    _begin(EARLY)
    k = tl.arange(0, BK)
    wide = k < K
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    place = n[:, None].to(tl.int64) * K + k[None, :]
    there = (n[:, None] < N) & wide[None, :]
    w = tl.load(W + place, mask=there, other=0)
    g = w
    if ACT == "swiglu":
        g = tl.load(Gate + place, mask=there, other=0)
    norm_w, norm_b = 0.0, 0.0
    if NORM != "none":
        norm_w = tl.load(NormW + k, mask=wide, other=0).to(tl.float32)
        if NORM_BIAS:
            norm_b = tl.load(NormB + k, mask=wide, other=0).to(tl.float32)
    _wait(EARLY)
    x = tl.load(X + k, mask=wide, other=0).to(tl.float32)
    if NORM != "none":
        x = _normal(x, tl.load(X).to(tl.float32), wide, norm_w, norm_b, eps, K, NORM, NORM_BIAS)
    best, at = float("-inf"), 2147483647
    for block in range(tl.program_id(0), tl.cdiv(N, BN), tl.num_programs(0)):
        n = block * BN + tl.arange(0, BN)
        # The next block's weights are on their way while this one is worked on.
        following = n + tl.num_programs(0) * BN
        place = following[:, None].to(tl.int64) * K + k[None, :]
        there = (following[:, None] < N) & wide[None, :]
        next_w = tl.load(W + place, mask=there, other=0)
        next_g = next_w
        if ACT == "swiglu":
            next_g = tl.load(Gate + place, mask=there, other=0)
        y = tl.sum(w.to(tl.float32) * x[None, :], axis=1)
        gate = y
        if ACT == "swiglu":
            gate = tl.sum(g.to(tl.float32) * x[None, :], axis=1)
        if BIAS:
            y += tl.load(Bias + n, mask=n < N, other=0).to(tl.float32)
            if ACT == "swiglu":
                gate += tl.load(GateBias + n, mask=n < N, other=0).to(tl.float32)
        y = _bent(y, gate, ACT)
        if ADD:
            y += tl.load(Out + n, mask=n < N, other=0).to(tl.float32)
        if BEST:
            y = tl.where(n < N, y, float("-inf"))
            top = tl.max(y)
            at = tl.where(top > best, tl.min(tl.where(y == top, n, 2147483647)), at)
            best = tl.maximum(best, top)
        else:
            tl.store(Out + n, y, mask=n < N)
        w, g = next_w, next_g
    if BEST:
        tl.store(Best + tl.program_id(0), best)
        tl.store(At + tl.program_id(0), at)


@triton.jit
def normed(
    X, Parts, Bias, NormW, NormB, Out, rows, eps,
    K: tl.constexpr, BK: tl.constexpr, PARTS: tl.constexpr, BIAS: tl.constexpr, NORM: tl.constexpr,
    NORM_BIAS: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """A row's residual and norm, a program a row: x += Σ parts + bias, out = norm(x).

    Parts: (PARTS, rows, K), what linear_some made of a part of its inputs each.
    """
    _begin(EARLY)
    b = tl.program_id(0)
    k = tl.arange(0, BK)
    wide = k < K
    norm_w, norm_b = tl.load(NormW + k, mask=wide, other=0).to(tl.float32), 0.0
    if NORM_BIAS:
        norm_b = tl.load(NormB + k, mask=wide, other=0).to(tl.float32)
    _wait(EARLY)
    x = tl.load(X + b * K + k, mask=wide, other=0)
    first = tl.load(X + b * K)  # of the row that is normed: it, too, gets what is added
    for i in tl.static_range(PARTS):
        x += tl.load(Parts + (i * rows + b) * K + k, mask=wide, other=0)
        first += tl.load(Parts + (i * rows + b) * K)
    if PARTS > 0:
        if BIAS:
            x += tl.load(Bias + k, mask=wide, other=0).to(tl.float32)
            first += tl.load(Bias).to(tl.float32)
        tl.store(X + b * K + k, x, mask=wide)
    tl.store(Out + b * K + k, _normal(x, first, wide, norm_w, norm_b, eps, K, NORM, NORM_BIAS), mask=wide)


@triton.jit
def linear_some(
    X, W, Gate, Bias, GateBias, Out, Best, At, B, N,
    K: tl.constexpr, BB: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PARTS: tl.constexpr, ACT: tl.constexpr,
    BIAS: tl.constexpr, BEST: tl.constexpr, EARLY: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """linear_one for B rows, by matrix products: all BB ≥ B rows in one program, a block of BN outputs, BK at a time.

    PARTS > 1: program (·, i) takes the i-th part of the inputs, and Out is (PARTS, B, N), for `normed` to add up.
    """
    _begin(EARLY)
    rows = tl.arange(0, BB)
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    real = rows < B
    y = tl.zeros([BB, BN], tl.float32)
    gate = tl.zeros([BB, BN], tl.float32)
    share = (K // BK + PARTS - 1) // PARTS * BK if K % BK == 0 else (K // BK + PARTS) // PARTS * BK
    low = tl.program_id(1) * share
    _wait(EARLY)
    for k0 in range(low, tl.minimum(low + share, K), BK):
        k = k0 + tl.arange(0, BK)
        x = tl.load(X + rows[:, None] * K + k[None, :], mask=real[:, None] & (k[None, :] < K), other=0)
        place = n[None, :].to(tl.int64) * K + k[:, None]
        there = (n[None, :] < N) & (k[:, None] < K)
        y = tl.dot(x, tl.load(W + place, mask=there, other=0), y, input_precision=PRECISION)
        if ACT == "swiglu":
            gate = tl.dot(x, tl.load(Gate + place, mask=there, other=0), gate, input_precision=PRECISION)
    if BIAS:
        y += tl.load(Bias + n, mask=n < N, other=0).to(tl.float32)[None, :]
        if ACT == "swiglu":
            gate += tl.load(GateBias + n, mask=n < N, other=0).to(tl.float32)[None, :]
    y = _bent(y, gate, ACT)
    if BEST:
        y = tl.where(n[None, :] < N, y, float("-inf"))
        best = tl.max(y, axis=1)
        at = tl.min(tl.where(y == best[:, None], n[None, :], 2147483647), axis=1)
        tl.store(Best + rows * tl.num_programs(0) + tl.program_id(0), best, mask=real)
        tl.store(At + rows * tl.num_programs(0) + tl.program_id(0), at, mask=real)
    else:
        place = (tl.program_id(1) * B + rows[:, None]) * N + n[None, :]
        tl.store(Out + place, y, mask=real[:, None] & (n[None, :] < N))


@triton.jit
def _turned(
    Row, NormW, Cos, Sin, d, there, place, eps,
    D: tl.constexpr, ROTARY: tl.constexpr, QK_NORM: tl.constexpr,
):  # fmt: skip
    """Rows of queries or keys with head norm and rotary; `place` is where each row's channel d lies."""
    t = tl.load(Row + place, mask=there, other=0).to(tl.float32)
    if ROTARY == "none":
        pair = d
    elif ROTARY == "halves":
        pair = tl.where(d < D // 2, d + D // 2, d - D // 2)
    else:
        pair = d ^ 1
    if QK_NORM:
        scale = tl.rsqrt(tl.sum(t * t, axis=1) / D + eps)[:, None]
        t = t * scale * tl.load(NormW + d, mask=d < D, other=0).to(tl.float32)[None, :]
    if ROTARY != "none":
        other = tl.load(Row + place - d[None, :] + pair[None, :], mask=there, other=0).to(tl.float32)
        if QK_NORM:
            other = other * scale * tl.load(NormW + pair, mask=d < D, other=0).to(tl.float32)[None, :]
        wave = d % (D // 2) if ROTARY == "halves" else d // 2
        first = d < D // 2 if ROTARY == "halves" else d % 2 == 0
        cos = tl.load(Cos + wave, mask=d < D, other=0)
        sin = tl.load(Sin + wave, mask=d < D, other=0)
        t = t * cos[None, :] + other * tl.where(first, -sin, sin)[None, :]
    return t


@triton.jit
def _seen_block(i, low, slot, Keys, Values, cache, d, D: tl.constexpr, BS: tl.constexpr):
    """Block i of the keys before `slot`: which are there, and their keys and values."""
    s = (low // BS + i) * BS + tl.arange(0, BS)
    seen = (s >= low) & (s < slot)
    place = cache + s[:, None].to(tl.int64) * D + d[None, :]
    there = seen[:, None] & (d[None, :] < D)
    return seen, tl.load(Keys + place, mask=there, other=0), tl.load(Values + place, mask=there, other=0)


@triton.jit
def _mix(q, seen, k, v, top, total, mixed, G: tl.constexpr, PRECISION: tl.constexpr):
    """Add a block of keys to a running softmax: largest score, sum of weights, mixed values."""
    if G == 1:  # one query: everything stays where the keys lie, and its numbers are plain scalars
        scores = tl.where(seen, tl.sum(k.to(tl.float32) * q, axis=1), float("-inf"))
        new = tl.maximum(top, tl.max(scores))
        shrink = tl.where(new == float("-inf"), 1.0, tl.exp2(top - new))
        p = tl.where(seen, tl.exp2(scores - new), 0.0)
        total = total * shrink + tl.sum(p)
        mixed = mixed * shrink + tl.sum(p[:, None] * v.to(tl.float32), axis=0)[None, :]
    else:
        scores = tl.dot(q.to(k.dtype), tl.trans(k), input_precision=PRECISION)
        scores = tl.where(seen[None, :], scores, float("-inf"))
        new = tl.maximum(top, tl.max(scores, axis=1))
        shrink = tl.where(new == float("-inf"), 1.0, tl.exp2(top - new))
        p = tl.where(seen[None, :], tl.exp2(scores - new[:, None]), 0.0)
        total = total * shrink + tl.sum(p, axis=1)
        mixed = mixed * shrink[:, None] + tl.dot(p.to(v.dtype), v, input_precision=PRECISION)
    return new, total, mixed


@triton.jit
def _none_yet(G: tl.constexpr, DP: tl.constexpr):
    """A running softmax over no keys at all."""
    if G == 1:
        top, total = float("-inf"), 0.0
    else:
        top, total = tl.full([G], float("-inf"), tl.float32), tl.zeros([G], tl.float32)
    return top, total, tl.zeros([G, DP], tl.float32)


@triton.jit
def _column(t, G: tl.constexpr):
    """One number a query, to be used with its values."""
    return t if G == 1 else t[:, None]


@triton.jit
def attend_one(
    QKV, Keys, Values, Slot, Start, QNorm, KNorm, Cos, Sin, Parts, Tops, Sums, Arrived, Out, room, window, scale, eps,
    H: tl.constexpr, HKV: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, G: tl.constexpr, BS: tl.constexpr,
    SPLITS: tl.constexpr, ROTARY: tl.constexpr, QK_NORM: tl.constexpr, WINDOW: tl.constexpr, EARLY: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """One query a head against all keys so far: the new key and value are turned, written and attended to.

    QKV: (B, (H + 2·HKV)·D) as projected. Keys, Values: (B, HKV, room, D). Slot, Start: (B,), where the new key goes and
    where a row's text begins. A program takes every SPLITS-th block of BS keys of one key head and all of its G query
    heads; the last to arrive adds up the parts.
    """
    _begin(EARLY)
    b, head, part = tl.program_id(0) // HKV, tl.program_id(0) % HKV, tl.program_id(1)
    d = tl.arange(0, DP)
    g = tl.arange(0, G)
    wide = d < D
    rows = (g[:, None] < H // HKV) & wide[None, :]
    # Old keys are read ahead of the wait. They, and Slot, were written before this token's first program began: that
    # one is launched without haste.
    slot, start = tl.load(Slot + b), tl.load(Start + b)
    low = start
    if WINDOW:
        low = tl.maximum(start, slot + 1 - window)
    blocks = tl.cdiv(slot, BS) - low // BS  # the new key is not among them
    cache = (b * HKV + head).to(tl.int64) * room * D
    seen, keys, values = _seen_block(part, low, slot, Keys, Values, cache, d, D, BS)
    cos, sin = Cos + (slot - start) * (D // 2), Sin + (slot - start) * (D // 2)
    _wait(EARLY)
    base = QKV + b * (H + 2 * HKV) * D
    q = _turned(
        base, QNorm, cos, sin, d, rows, (head * (H // HKV) + g[:, None]) * D + d[None, :], eps, D, ROTARY, QK_NORM
    )
    q = q.to(QKV.dtype.element_ty).to(tl.float32) * (scale * 1.4426950408889634)
    top, total, mixed = _none_yet(G, DP)
    if part == 0:
        one = tl.arange(0, 1)
        k = _turned(
            base, KNorm, cos, sin, d, wide[None, :] & (one[:, None] == 0), (H + head) * D + one[:, None] + d[None, :],
            eps, D, ROTARY, QK_NORM,
        ).to(Keys.dtype.element_ty)  # fmt: skip
        v = tl.load(base + (H + HKV + head) * D + one[:, None] + d[None, :], mask=wide[None, :], other=0)
        tl.store(Keys + cache + slot * D + one[:, None] + d[None, :], k, mask=wide[None, :])
        tl.store(Values + cache + slot * D + one[:, None] + d[None, :], v, mask=wide[None, :])
        top = tl.sum(q * k.to(tl.float32)) if G == 1 else tl.sum(q * k.to(tl.float32), axis=1)
        total += 1.0
        mixed += v.to(tl.float32)
    top, total, mixed = _mix(q, seen, keys, values, top, total, mixed, G, PRECISION)
    for i in range(part + SPLITS, blocks, SPLITS):
        seen, keys, values = _seen_block(i, low, slot, Keys, Values, cache, d, D, BS)
        top, total, mixed = _mix(q, seen, keys, values, top, total, mixed, G, PRECISION)
    out = Out + (b * H + head * (H // HKV) + g[:, None]) * D + d[None, :]
    at_work = tl.maximum(tl.minimum(SPLITS, blocks), 1)
    if at_work == 1:
        if part == 0:
            tl.store(out, mixed / _column(total, G), mask=rows)
    elif part < at_work:
        lane = 0 if G == 1 else g
        here = tl.program_id(0) * SPLITS
        tl.store(Tops + (here + part) * G + lane, top)
        tl.store(Sums + (here + part) * G + lane, total)
        tl.store(Parts + ((here + part) * G + g[:, None]) * DP + d[None, :], mixed)
        tl.debug_barrier()  # all of this is written before the arrival is told
        if tl.atomic_add(Arrived + tl.program_id(0), 1, sem="acq_rel") == at_work - 1:
            top, total, mixed = _none_yet(G, DP)
            for i in range(at_work):
                here_top = tl.load(Tops + (here + i) * G + lane, cache_modifier=".cg")
                here_sum = tl.load(Sums + (here + i) * G + lane, cache_modifier=".cg")
                here_mixed = tl.load(Parts + ((here + i) * G + g[:, None]) * DP + d[None, :], cache_modifier=".cg")
                new = tl.maximum(top, here_top)
                shrink = tl.where(new == float("-inf"), 1.0, tl.exp2(top - new))
                grow = tl.where(new == float("-inf"), 1.0, tl.exp2(here_top - new))
                total = total * shrink + here_sum * grow
                mixed = mixed * _column(shrink, G) + here_mixed * _column(grow, G)
                top = new
            tl.store(out, mixed / _column(total, G), mask=rows)
            tl.store(Arrived + tl.program_id(0), 0)


@triton.jit
def embed(
    Best, At, Ids, Tokens, Step, Slot, Start, TokenW, PositionW, X, blocks, V, places,
    E: tl.constexpr, BE: tl.constexpr, BLOCKS: tl.constexpr, PICK: tl.constexpr, PLACES: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """The next token of each row: chosen (PICK: the best of all blocks of scores), noted, and its vector looked up.

    One program a row. Ids: (B,). Tokens: (steps, B), where row Step of it is written; Step, Slot and Start: (B,).
    """
    _begin(EARLY)
    b, rows = tl.program_id(0), tl.num_programs(0)
    e = tl.arange(0, BE)
    _wait(EARLY)
    if PICK:
        i = tl.arange(0, BLOCKS)
        best = tl.load(Best + b * blocks + i, mask=i < blocks, other=float("-inf"))
        at = tl.load(At + b * blocks + i, mask=i < blocks, other=0)
        token = tl.min(tl.where(best == tl.max(best), at, 2147483647))
        token = tl.where(token < V, token, 0)  # where no score was a number, none was best: any will do that there is
        tl.store(Ids + b, token.to(tl.int64))
    else:
        token = tl.load(Ids + b).to(tl.int32)
    step, slot, start = tl.load(Step + b), tl.load(Slot + b), tl.load(Start + b)
    tl.store(Tokens + step * rows + b, token.to(tl.int64))
    tl.store(Step + b, step + 1)
    tl.store(Slot + b, slot + 1)
    x = tl.load(TokenW + token.to(tl.int64) * E + e, mask=e < E, other=0).to(tl.float32)
    if PLACES:
        place = slot + 1 - start  # after the last token of a full context there is none, and none is needed
        x += tl.load(PositionW + place * E + e, mask=e < tl.where(place < places, E, 0), other=0).to(tl.float32)
    tl.store(X + b * E + e, x, mask=e < E)

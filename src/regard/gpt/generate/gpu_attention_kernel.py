"""The Triton kernel for the attention of a new token: one query per head against all keys so far."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
# Triton checks the types of kernels itself.

from __future__ import annotations

import triton
import triton.language as tl

from regard.gpt.generate.gpu_kernels import launch_next, wait_for_previous


@triton.jit
def _norm_and_rotate(
    Row, NormW, Cos, Sin, d, valid, place, eps,
    D: tl.constexpr, ROTARY: tl.constexpr, QK_NORM: tl.constexpr,
):  # fmt: skip
    """Rows of queries or keys after head norm and rotary; `place` is the offset of channel d in each row."""
    t = tl.load(Row + place, mask=valid, other=0).to(tl.float32)
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
        other = tl.load(Row + place - d[None, :] + pair[None, :], mask=valid, other=0).to(tl.float32)
        if QK_NORM:
            other = other * scale * tl.load(NormW + pair, mask=d < D, other=0).to(tl.float32)[None, :]
        wave = d % (D // 2) if ROTARY == "halves" else d // 2
        first = d < D // 2 if ROTARY == "halves" else d % 2 == 0
        cos = tl.load(Cos + wave, mask=d < D, other=0)
        sin = tl.load(Sin + wave, mask=d < D, other=0)
        t = t * cos[None, :] + other * tl.where(first, -sin, sin)[None, :]
    return t


@triton.jit
def _load_keys(i, low, slot, Keys, Values, cache, d, D: tl.constexpr, BS: tl.constexpr):
    """Block i of the keys before `slot`: which of them are visible, the keys and the values."""
    s = (low // BS + i) * BS + tl.arange(0, BS)
    visible = (s >= low) & (s < slot)
    place = cache + s[:, None].to(tl.int64) * D + d[None, :]
    valid = visible[:, None] & (d[None, :] < D)
    return visible, tl.load(Keys + place, mask=valid, other=0), tl.load(Values + place, mask=valid, other=0)


@triton.jit
def _update_softmax(q, visible, k, v, top, total, context, G: tl.constexpr, PRECISION: tl.constexpr):
    """Add a block of keys to a running softmax: largest score, sum of weights, weighted sum of values."""
    if G == 1:  # one query: the reductions give scalars
        scores = tl.where(visible, tl.sum(k.to(tl.float32) * q, axis=1), float("-inf"))
        new = tl.maximum(top, tl.max(scores))
        shrink = tl.where(new == float("-inf"), 1.0, tl.exp2(top - new))
        p = tl.where(visible, tl.exp2(scores - new), 0.0)
        total = total * shrink + tl.sum(p)
        context = context * shrink + tl.sum(p[:, None] * v.to(tl.float32), axis=0)[None, :]
    else:
        scores = tl.dot(q.to(k.dtype), tl.trans(k), input_precision=PRECISION)
        scores = tl.where(visible[None, :], scores, float("-inf"))
        new = tl.maximum(top, tl.max(scores, axis=1))
        shrink = tl.where(new == float("-inf"), 1.0, tl.exp2(top - new))
        p = tl.where(visible[None, :], tl.exp2(scores - new[:, None]), 0.0)
        total = total * shrink + tl.sum(p, axis=1)
        context = context * shrink[:, None] + tl.dot(p.to(v.dtype), v, input_precision=PRECISION)
    return new, total, context


@triton.jit
def _empty_softmax(G: tl.constexpr, DP: tl.constexpr):
    """A running softmax over no keys."""
    if G == 1:
        top, total = float("-inf"), 0.0
    else:
        top, total = tl.full([G], float("-inf"), tl.float32), tl.zeros([G], tl.float32)
    return top, total, tl.zeros([G, DP], tl.float32)


@triton.jit
def _column(t, G: tl.constexpr):
    """One number per query, shaped to scale its values."""
    return t if G == 1 else t[:, None]


@triton.jit
def _mean(context, total, top, G: tl.constexpr):
    """The weighted mean of values: NaN where no score is finite, as a lone NaN, or the largest is infinite."""
    total = tl.where(tl.abs(top) < float("inf"), total, float("nan"))
    return context / _column(total, G)


@triton.jit
def attend_one(
    QKV, Keys, Values, Slot, Start, QNorm, KNorm, Cos, Sin, Parts, Tops, Sums, Arrived, Out,
    capacity, window, scale, eps,
    H: tl.constexpr, HKV: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, G: tl.constexpr, BS: tl.constexpr,
    SPLITS: tl.constexpr, ROTARY: tl.constexpr, QK_NORM: tl.constexpr, WINDOW: tl.constexpr, EARLY: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """One query per head against all keys so far; the new key and value are rotated and written to the cache first.

    QKV: (B, (H + 2·HKV)·D) as projected. Keys, Values: (B, HKV, capacity, D). Slot, Start: (B,), the index of the new
    key and of a row's first token. A program takes every SPLITS-th block of BS keys of one key head and all of its G
    query heads; the last program to finish combines the partial results.
    """
    launch_next(EARLY)
    b, head, part = tl.program_id(0) // HKV, tl.program_id(0) % HKV, tl.program_id(1)
    d = tl.arange(0, DP)
    g = tl.arange(0, G)
    in_head = d < D
    rows = (g[:, None] < H // HKV) & in_head[None, :]
    # Old keys are loaded ahead of the wait. They, and Slot, were written before the first kernel of this token started,
    # which is launched without programmatic dependent launch.
    slot, start = tl.load(Slot + b), tl.load(Start + b)
    low = start
    if WINDOW:
        low = tl.maximum(start, slot + 1 - window)
    blocks = tl.cdiv(slot, BS) - low // BS  # the new key is not among them
    cache = (b * HKV + head).to(tl.int64) * capacity * D
    visible, keys, values = _load_keys(part, low, slot, Keys, Values, cache, d, D, BS)
    cos, sin = Cos + (slot - start) * (D // 2), Sin + (slot - start) * (D // 2)
    wait_for_previous(EARLY)
    base = QKV + b * (H + 2 * HKV) * D
    q = _norm_and_rotate(
        base, QNorm, cos, sin, d, rows, (head * (H // HKV) + g[:, None]) * D + d[None, :], eps, D, ROTARY, QK_NORM
    )
    q = q.to(QKV.dtype.element_ty).to(tl.float32) * (scale * 1.4426950408889634)
    top, total, context = _empty_softmax(G, DP)
    if part == 0:
        one = tl.arange(0, 1)
        k = _norm_and_rotate(
            base, KNorm, cos, sin, d, in_head[None, :] & (one[:, None] == 0),
            (H + head) * D + one[:, None] + d[None, :], eps, D, ROTARY, QK_NORM,
        ).to(Keys.dtype.element_ty)  # fmt: skip
        v = tl.load(base + (H + HKV + head) * D + one[:, None] + d[None, :], mask=in_head[None, :], other=0)
        tl.store(Keys + cache + slot * D + one[:, None] + d[None, :], k, mask=in_head[None, :])
        tl.store(Values + cache + slot * D + one[:, None] + d[None, :], v, mask=in_head[None, :])
        top = tl.sum(q * k.to(tl.float32)) if G == 1 else tl.sum(q * k.to(tl.float32), axis=1)
        total += 1.0
        context += v.to(tl.float32)
    top, total, context = _update_softmax(q, visible, keys, values, top, total, context, G, PRECISION)
    for i in range(part + SPLITS, blocks, SPLITS):
        visible, keys, values = _load_keys(i, low, slot, Keys, Values, cache, d, D, BS)
        top, total, context = _update_softmax(q, visible, keys, values, top, total, context, G, PRECISION)
    out = Out + (b * H + head * (H // HKV) + g[:, None]) * D + d[None, :]
    active = tl.maximum(tl.minimum(SPLITS, blocks), 1)
    if active == 1:
        if part == 0:
            tl.store(out, _mean(context, total, top, G), mask=rows)
    elif part < active:
        lane = 0 if G == 1 else g
        here = tl.program_id(0) * SPLITS
        tl.store(Tops + (here + part) * G + lane, top)
        tl.store(Sums + (here + part) * G + lane, total)
        tl.store(Parts + ((here + part) * G + g[:, None]) * DP + d[None, :], context)
        tl.debug_barrier()  # the partial results are written before they are counted
        if tl.atomic_add(Arrived + tl.program_id(0), 1, sem="acq_rel") == active - 1:
            top, total, context = _empty_softmax(G, DP)
            for i in range(active):
                part_top = tl.load(Tops + (here + i) * G + lane, cache_modifier=".cg")
                part_sum = tl.load(Sums + (here + i) * G + lane, cache_modifier=".cg")
                part_context = tl.load(Parts + ((here + i) * G + g[:, None]) * DP + d[None, :], cache_modifier=".cg")
                new = tl.maximum(top, part_top)
                shrink = tl.where(new == float("-inf"), 1.0, tl.exp2(top - new))
                grow = tl.where(new == float("-inf"), 1.0, tl.exp2(part_top - new))
                total = total * shrink + part_sum * grow
                context = context * _column(shrink, G) + part_context * _column(grow, G)
                top = new
            tl.store(out, _mean(context, total, top, G), mask=rows)
            tl.store(Arrived + tl.program_id(0), 0)

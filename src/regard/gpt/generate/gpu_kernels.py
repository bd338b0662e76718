"""The Triton kernels that run for each new token, all but attention (gpu_attention_kernel.py).

A new token is one row, and reading the weights takes all the time. So each program loads its weights first, waits for
the row that the kernel before it still computes, and does everything to that row at once: norm, product, bias,
activation, residual. `linear_one` is every linear layer for one row; `add_and_norm` and `linear_some` are for several
rows; `embed` selects the next token and loads its vector.

EARLY: on Hopper and later, a kernel may start before the one it depends on has ended (programmatic dependent launch):
weights, and the keys of earlier tokens, are then loaded ahead of the wait.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def activate(x, NAME: tl.constexpr):
    """The activations of regard.gpt.activations, by name."""
    if NAME == "gelu":
        inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
        y = x * tl.sigmoid(2.0 * inner)  # (1 + tanh(z)) / 2 = sigmoid(2z)
    elif NAME == "gelu_exact":
        y = 0.5 * x * (1.0 + tl.erf(0.7071067811865476 * x))
    else:  # Triton compiles all that follows a branch with a return, so there is one return
        tl.static_assert(NAME == "silu", "this activation has no expression here")
        y = x * tl.sigmoid(x)
    return y


@triton.jit
def _apply(y, gate, ACTIVATION: tl.constexpr, GATED: tl.constexpr):
    """activation(y), or activation(gate) · y; y as it is where there is no activation."""
    if ACTIVATION != "none":
        y = activate(gate, ACTIVATION) * y if GATED else activate(y, ACTIVATION)
    return y


@triton.jit
def select_weights(block, W, KeyW, ValueW, Bias, KeyBias, ValueBias, N, key_N, BN: tl.constexpr, THREE: tl.constexpr):
    """The weight and bias that a block of BN outputs belongs to, with its rows, its size and its first output column.

    THREE: queries, keys and values are one product over three weights in separate memory. Blocks are counted weight by
    weight, so no block belongs to two of them and the choice is one scalar select.
    """
    column = 0
    if THREE:
        key_block = tl.cdiv(N, BN)
        value_block = key_block + tl.cdiv(key_N, BN)
        is_key, is_value = block >= key_block, block >= value_block
        W = tl.where(is_value, ValueW, tl.where(is_key, KeyW, W))
        Bias = tl.where(is_value, ValueBias, tl.where(is_key, KeyBias, Bias))
        column = tl.where(is_value, N + key_N, tl.where(is_key, N, 0))
        block -= tl.where(is_value, value_block, tl.where(is_key, key_block, 0))
        N = tl.where(is_key, key_N, N)
    return W, Bias, block * BN + tl.arange(0, BN), N, column


@triton.jit
def count_blocks(N, key_N, BN: tl.constexpr, THREE: tl.constexpr):
    """How many blocks of BN outputs `select_weights` tells apart."""
    blocks = tl.cdiv(N, BN)
    if THREE:
        blocks += 2 * tl.cdiv(key_N, BN)
    return blocks


@triton.jit
def launch_next(EARLY: tl.constexpr):
    """Let the next kernel start: what does not depend on this one, it loads while this one works."""
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def wait_for_previous(EARLY: tl.constexpr):
    """After this, everything that earlier kernels wrote can be read."""
    if EARLY:
        tl.extra.cuda.gdc_wait()


@triton.jit
def _add_pairs(a, b, c, d):
    return a + c, b + d


@triton.jit
def _normalize(x, first, valid, norm_w, norm_b, eps, K: tl.constexpr, NORM: tl.constexpr, NORM_BIAS: tl.constexpr):
    """LayerNorm or RMSNorm of a row, in one pass.

    Sums are taken relative to the row's `first` number, which keeps them exact where the whole row is far from 0.
    """
    if NORM == "layer":
        x = tl.where(valid, x - first, 0.0)
        total, squares = tl.reduce((x, x * x), 0, _add_pairs)
        x = (x - total / K) * tl.rsqrt(tl.maximum(squares / K - (total / K) * (total / K), 0.0) + eps) * norm_w
    else:
        x = x * tl.rsqrt(tl.sum(x * x) / K + eps) * norm_w
    if NORM_BIAS:
        x += norm_b
    return x


@triton.jit
def linear_one(
    X, W, KeyW, ValueW, Gate, Bias, KeyBias, ValueBias, GateBias, NormW, NormB, Out, Best, At, N, key_N, eps,
    K: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, NORM: tl.constexpr, NORM_BIAS: tl.constexpr,
    ACTIVATION: tl.constexpr, GATED: tl.constexpr, THREE: tl.constexpr, BIAS: tl.constexpr, ADD: tl.constexpr,
    BEST: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """out = activation(norm(x) · Wᵀ + bias), for one row x. A program takes blocks of BN outputs, all of K at once.

    GATED: activation(gate) · out. THREE: see select_weights; Out holds N queries, then key_N keys and as many values.
    ADD: added to Out (a residual). BEST: only the largest output of a program is stored, and its index.
    """
    launch_next(EARLY)
    k = tl.arange(0, BK)
    in_row = k < K
    blocks = count_blocks(N, key_N, BN, THREE)
    weight, bias, n, size, column = select_weights(
        tl.program_id(0), W, KeyW, ValueW, Bias, KeyBias, ValueBias, N, key_N, BN, THREE
    )
    offset = n[:, None].to(tl.int64) * K + k[None, :]
    valid = (n[:, None] < size) & in_row[None, :]
    w = tl.load(weight + offset, mask=valid, other=0)
    g = w
    if GATED:
        g = tl.load(Gate + offset, mask=valid, other=0)
    norm_w, norm_b = 0.0, 0.0
    if NORM != "none":
        norm_w = tl.load(NormW + k, mask=in_row, other=0).to(tl.float32)
        if NORM_BIAS:
            norm_b = tl.load(NormB + k, mask=in_row, other=0).to(tl.float32)
    wait_for_previous(EARLY)
    x = tl.load(X + k, mask=in_row, other=0).to(tl.float32)
    if NORM != "none":
        x = _normalize(x, tl.load(X).to(tl.float32), in_row, norm_w, norm_b, eps, K, NORM, NORM_BIAS)
    best, at = float("-inf"), 2147483647
    for block in range(tl.program_id(0), blocks, tl.num_programs(0)):
        _, bias, n, size, column = select_weights(block, W, KeyW, ValueW, Bias, KeyBias, ValueBias, N, key_N, BN, THREE)
        # The next block's weights are loaded while this one is multiplied.
        following = block + tl.num_programs(0)
        weight, _, next_n, next_size, _ = select_weights(
            following, W, KeyW, ValueW, Bias, KeyBias, ValueBias, N, key_N, BN, THREE
        )
        offset = next_n[:, None].to(tl.int64) * K + k[None, :]
        valid = (next_n[:, None] < next_size) & in_row[None, :]
        next_w = tl.load(weight + offset, mask=valid, other=0)
        next_g = next_w
        if GATED:
            next_g = tl.load(Gate + offset, mask=valid, other=0)
        y = tl.sum(w.to(tl.float32) * x[None, :], axis=1)
        gate = y
        if GATED:
            gate = tl.sum(g.to(tl.float32) * x[None, :], axis=1)
        if BIAS:
            y += tl.load(bias + n, mask=n < size, other=0).to(tl.float32)
            if GATED:
                gate += tl.load(GateBias + n, mask=n < size, other=0).to(tl.float32)
        y = _apply(y, gate, ACTIVATION, GATED)
        if ADD:
            y += tl.load(Out + n, mask=n < size, other=0).to(tl.float32)
        if BEST:
            y = tl.where(y != y, float("inf"), y)  # a maximum would pass over NaN; embed sees infinity
            y = tl.where(n < size, y, float("-inf"))
            top = tl.max(y)
            at = tl.where(top > best, tl.min(tl.where(y == top, n, 2147483647)), at)
            best = tl.maximum(best, top)
        else:
            tl.store(Out + column + n, y, mask=n < size)
        w, g = next_w, next_g
    if BEST:
        tl.store(Best + tl.program_id(0), best)
        tl.store(At + tl.program_id(0), at)


@triton.jit
def add_and_norm(
    X, Parts, Bias, NormW, NormB, Out, rows, eps,
    K: tl.constexpr, BK: tl.constexpr, PARTS: tl.constexpr, BIAS: tl.constexpr, NORM: tl.constexpr,
    NORM_BIAS: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """The residual and norm of a row, one program per row: x += Σ parts + bias, out = norm(x).

    Parts: (PARTS, rows, K), the partial sums that linear_some left.
    """
    launch_next(EARLY)
    b = tl.program_id(0)
    k = tl.arange(0, BK)
    in_row = k < K
    norm_w, norm_b = tl.load(NormW + k, mask=in_row, other=0).to(tl.float32), 0.0
    if NORM_BIAS:
        norm_b = tl.load(NormB + k, mask=in_row, other=0).to(tl.float32)
    wait_for_previous(EARLY)
    x = tl.load(X + b * K + k, mask=in_row, other=0)
    first = tl.load(X + b * K)  # of the row to be normed, so the same is added to it
    for i in tl.static_range(PARTS):
        x += tl.load(Parts + (i * rows + b) * K + k, mask=in_row, other=0)
        first += tl.load(Parts + (i * rows + b) * K)
    if PARTS > 0:
        if BIAS:
            x += tl.load(Bias + k, mask=in_row, other=0).to(tl.float32)
            first += tl.load(Bias).to(tl.float32)
        tl.store(X + b * K + k, x, mask=in_row)
    tl.store(Out + b * K + k, _normalize(x, first, in_row, norm_w, norm_b, eps, K, NORM, NORM_BIAS), mask=in_row)


@triton.jit
def linear_some(
    X, W, KeyW, ValueW, Gate, Bias, KeyBias, ValueBias, GateBias, Out, Best, At, B, N, key_N,
    K: tl.constexpr, BB: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PARTS: tl.constexpr,
    ACTIVATION: tl.constexpr, GATED: tl.constexpr, THREE: tl.constexpr, BIAS: tl.constexpr, BEST: tl.constexpr,
    EARLY: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """linear_one for B rows, by matrix products: all BB ≥ B rows in one program, a block of BN outputs, BK at a time.

    PARTS > 1: program (·, i) takes the i-th part of the inputs, and Out is (PARTS, B, N), for add_and_norm to add up.
    """
    launch_next(EARLY)
    rows = tl.arange(0, BB)
    weight, bias, n, size, column = select_weights(
        tl.program_id(0), W, KeyW, ValueW, Bias, KeyBias, ValueBias, N, key_N, BN, THREE
    )
    width = N
    if THREE:
        width = N + 2 * key_N
    in_batch = rows < B
    y = tl.zeros([BB, BN], tl.float32)
    gate = tl.zeros([BB, BN], tl.float32)
    share = (K // BK + PARTS - 1) // PARTS * BK if K % BK == 0 else (K // BK + PARTS) // PARTS * BK
    low = tl.program_id(1) * share
    wait_for_previous(EARLY)
    for k0 in range(low, tl.minimum(low + share, K), BK):
        k = k0 + tl.arange(0, BK)
        x = tl.load(X + rows[:, None] * K + k[None, :], mask=in_batch[:, None] & (k[None, :] < K), other=0)
        offset = n[None, :].to(tl.int64) * K + k[:, None]
        valid = (n[None, :] < size) & (k[:, None] < K)
        y = tl.dot(x, tl.load(weight + offset, mask=valid, other=0), y, input_precision=PRECISION)
        if GATED:
            gate = tl.dot(x, tl.load(Gate + offset, mask=valid, other=0), gate, input_precision=PRECISION)
    if BIAS:
        y += tl.load(bias + n, mask=n < size, other=0).to(tl.float32)[None, :]
        if GATED:
            gate += tl.load(GateBias + n, mask=n < size, other=0).to(tl.float32)[None, :]
    y = _apply(y, gate, ACTIVATION, GATED)
    if BEST:
        y = tl.where(y != y, float("inf"), y)
        y = tl.where(n[None, :] < size, y, float("-inf"))
        best = tl.max(y, axis=1)
        at = tl.min(tl.where(y == best[:, None], n[None, :], 2147483647), axis=1)
        tl.store(Best + rows * tl.num_programs(0) + tl.program_id(0), best, mask=in_batch)
        tl.store(At + rows * tl.num_programs(0) + tl.program_id(0), at, mask=in_batch)
    else:
        place = (tl.program_id(1) * B + rows[:, None]) * width + column + n[None, :]
        tl.store(Out + place, y, mask=in_batch[:, None] & (n[None, :] < size))


@triton.jit
def embed(
    Best, At, Ids, Tokens, Step, Slot, Start, TokenW, PositionW, X, blocks, V, positions,
    E: tl.constexpr, BE: tl.constexpr, BLOCKS: tl.constexpr, PICK: tl.constexpr, POSITIONS: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """The next token of each row: selected (PICK: the best over all blocks of scores), stored, and its vector loaded.

    One program per row. Ids: (B,). Tokens: (steps, B), written at row Step; Step, Slot and Start: (B,).
    Best: (B, blocks), or (B,) without PICK. If a row's best score is not finite, −1 is stored in Tokens.
    """
    launch_next(EARLY)
    b, rows = tl.program_id(0), tl.num_programs(0)
    e = tl.arange(0, BE)
    wait_for_previous(EARLY)
    if PICK:
        i = tl.arange(0, BLOCKS)
        best = tl.load(Best + b * blocks + i, mask=i < blocks, other=float("-inf"))
        at = tl.load(At + b * blocks + i, mask=i < blocks, other=0)
        top = tl.max(best)
        token = tl.min(tl.where(best == top, at, 2147483647))
        token = tl.where(token < V, token, 0)  # if all scores are −∞, no index was found: any valid token will do
        tl.store(Ids + b, token.to(tl.int64))
    else:
        top = tl.load(Best + b)
        token = tl.load(Ids + b).to(tl.int32)
    step, slot, start = tl.load(Step + b), tl.load(Slot + b), tl.load(Start + b)
    is_finite = (top > float("-inf")) & (top < float("inf"))
    tl.store(Tokens + step * rows + b, tl.where(is_finite, token, -1).to(tl.int64))
    tl.store(Step + b, step + 1)
    tl.store(Slot + b, slot + 1)
    x = tl.load(TokenW + token.to(tl.int64) * E + e, mask=e < E, other=0).to(tl.float32)
    if POSITIONS:
        position = slot + 1 - start  # beyond the last position of a full context nothing is loaded, or needed
        in_table = e < tl.where(position < positions, E, 0)
        x += tl.load(PositionW + position * E + e, mask=in_table, other=0).to(tl.float32)
    tl.store(X + b * E + e, x, mask=e < E)

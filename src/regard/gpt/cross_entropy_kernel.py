"""Cross-entropy and its gradient over rows of logits, in Triton: the gradient overwrites the logits.

One program per row. A first pass over the row computes the largest logit, the sum and the target's logit; a second one
writes softmax − 1(target). By then the row is in the cache, so the second pass costs little more than the writing.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def rows_of_logits(Logits, step, Targets, Losses, V, W, GRADS: tl.constexpr, BLOCK: tl.constexpr):
    """Columns from V to W are padding: they are ignored, and their gradient is 0."""
    row = tl.program_id(0).to(tl.int64)
    Logits += row * step
    target = tl.load(Targets + row)
    cols = tl.arange(0, BLOCK)
    # Each lane keeps a running softmax of its own columns; they are combined once, at the end of the row.
    running_max = tl.full([BLOCK], -1.0e30, tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    target_logit = tl.zeros([BLOCK], tl.float32)
    for at in range(0, V, BLOCK):
        x = tl.load(Logits + at + cols, mask=at + cols < V, other=float("-inf")).to(tl.float32) * 1.4426950408889634
        new_max = tl.maximum(running_max, x)
        total = total * tl.exp2(running_max - new_max) + tl.exp2(x - new_max)
        target_logit += tl.where(at + cols == target, x, 0.0)
        running_max = new_max
    row_max = tl.max(running_max, 0)
    lse = row_max + tl.log2(tl.sum(total * tl.exp2(running_max - row_max), 0))  # in units of log 2, as x is
    loss = (lse - tl.sum(target_logit, 0)) * 0.6931471805599453
    # A target outside the vocabulary gives NaN, which is noticed, rather than a meaningless number.
    loss = tl.where(target < V, loss, float("nan"))
    tl.store(Losses + row, tl.where(target < 0, 0.0, loss))
    if GRADS:
        counts = tl.where(target < 0, 0.0, 1.0)
        for at in range(0, W, BLOCK):
            place = Logits + at + cols
            x = tl.load(place, mask=at + cols < V, other=float("-inf")).to(tl.float32) * 1.4426950408889634
            grad = (tl.exp2(x - lse) - tl.where(at + cols == target, 1.0, 0.0)) * counts
            tl.store(place, grad.to(Logits.dtype.element_ty), mask=at + cols < W)


def cross_entropy_(logits: Tensor, targets: Tensor, losses: Tensor, V: int, grads: bool, BLOCK: int = 4096) -> None:
    """Write each row's loss into `losses`, and with `grads` its gradient into the logits.

    logits: (N, W), of which V columns are real; rows may have any stride. targets: (N,); rows with a negative target
    are ignored.
    """
    N, W = logits.shape
    BLOCK = min(BLOCK, triton.next_power_of_2(W))
    if N:
        warps = max(4, min(16, BLOCK // 512))
        rows_of_logits[(N,)](logits, logits.stride(0), targets, losses, V, W, GRADS=grads, BLOCK=BLOCK, num_warps=warps)

"""Cross-entropy and its gradient over rows of logits, in Triton: the gradient takes the place of the logits.

One program a row. It walks over the row once for the largest logit, the sum and the target's own logit, and once more
to write softmax − 1(target). The second walk finds the row in the cache, so it costs little more than writing.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def rows_of_logits(Logits, step, Targets, Losses, V, W, GRADS: tl.constexpr, BLOCK: tl.constexpr):
    """Columns from V to W are padding: they count for nothing, and their gradient is 0."""
    row = tl.program_id(0).to(tl.int64)
    Logits += row * step
    target = tl.load(Targets + row)
    cols = tl.arange(0, BLOCK)
    # Each lane keeps a running softmax of its own columns: nothing is shared out before the end of the row.
    most = tl.full([BLOCK], -1.0e30, tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    own = tl.zeros([BLOCK], tl.float32)
    for at in range(0, V, BLOCK):
        x = tl.load(Logits + at + cols, mask=at + cols < V, other=float("-inf")).to(tl.float32) * 1.4426950408889634
        more = tl.maximum(most, x)
        total = total * tl.exp2(most - more) + tl.exp2(x - more)
        own += tl.where(at + cols == target, x, 0.0)
        most = more
    highest = tl.max(most, 0)
    lse = highest + tl.log2(tl.sum(total * tl.exp2(most - highest), 0))  # in units of log 2, as x is
    loss = (lse - tl.sum(own, 0)) * 0.6931471805599453
    # A target past the vocabulary has no loss: NaN, which stops a run, rather than a number that means nothing.
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
    """Write each row's loss into `losses`, and its gradient over the logits themselves where `grads` asks for it.

    logits: (N, W), of which V columns are real; the rows may lie apart. targets: (N,); below 0 a row does not count.
    """
    N, W = logits.shape
    BLOCK = min(BLOCK, triton.next_power_of_2(W))
    if N:
        rows_of_logits[(N,)](
            logits, logits.stride(0), targets, losses, V, W, GRADS=grads, BLOCK=BLOCK, num_warps=max(4, min(16, BLOCK // 512))
        )  # fmt: skip

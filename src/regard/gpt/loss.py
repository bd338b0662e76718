"""The loss of a language model: how surprised it is by the next token, without a score for every token in memory.

Scores for a whole batch and vocabulary would be the largest tensor of training by far. Here they are made for a chunk
of tokens at a time, and each chunk's gradient takes its place at once: forward already knows what backward will ask.

    loss = mean(logsumexp(logits) − logits[target]);  d loss / d logits = (softmax(logits) − 1(target)) / count
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.arguments import autocast_dtype

# Bytes of logits at a time. More makes nothing faster: training a model of 124 million parameters on an H200 was as
# quick with 256 MiB (505,000 tokens a second) as with 1 GiB or 4 (508,000). A CPU's memory is smaller.
ROOM = {"cuda": 1 << 30, "cpu": 128 << 20}
# Tensor cores are several times slower on a width such as 50257, so on a GPU the vocabulary is made a round number.
ROUND = 128


def next_token_loss(
    x: Float[Tensor, "N E"], weight: Float[Tensor, "V E"], targets: Int[Tensor, "N"], chunk: int | None = None
) -> Float[Tensor, ""]:
    """The mean cross-entropy of the next token, from hidden states and the head's weight.

    >>> x, weight = torch.zeros(3, 8), torch.randn(50, 8)
    >>> next_token_loss(x, weight, torch.tensor([4, 7, -1]))  # a vector of zeros says nothing: log 50
    tensor(3.9120)

    targets: a token id for each row; rows with a negative one are left out of the mean.
    chunk: how many rows have logits at a time; as many as 128 MiB hold unless given (1 GiB on a GPU).
    Products are in x's dtype (in autocast's where that is on); losses, and the sum of the weight's gradient, in
    float32 or better.
    """
    kind = x.device.type
    narrow = autocast_dtype(kind)
    if narrow is not None and x.dtype is not torch.float64:
        x = x.to(narrow)
    _check(x, weight, targets, chunk)
    if chunk is None:
        chunk = rows_at_a_time(len(x), len(weight), x.dtype, kind)
    grads = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
    loss: Tensor = in_chunks(x, weight, targets, chunk, grads)[0]
    return loss


def rows_at_a_time(N: int, V: int, dtype: torch.dtype, kind: str) -> int:
    """Rows in a chunk: what fits the room, shared out evenly.

    >>> rows_at_a_time(32768, 50257, torch.bfloat16, "cuda")
    8192
    """
    most = max(ROUND, ROOM.get(kind, ROOM["cpu"]) // (V * dtype.itemsize))
    parts = max(1, -(-N // most))
    return max(1, -(-N // parts))


@torch.library.custom_op(
    "regard::next_token_loss",
    mutates_args=(),
    schema="(Tensor x, Tensor weight, Tensor targets, int chunk, bool grads) -> (Tensor, Tensor, Tensor, Tensor)",
)
def in_chunks(
    x: Tensor, weight: Tensor, targets: Tensor, chunk: int, grads: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The loss; and, with `grads`, the gradients of x and weight still to be multiplied by the last: 1 / count."""
    N, V = len(x), len(weight)
    wide = _wide(x.dtype)
    share = 1 / (targets >= 0).sum().clamp(min=1).to(wide)
    losses = torch.empty(N, dtype=wide, device=x.device)
    of_x = torch.empty_like(x, memory_format=torch.contiguous_format) if grads else x.new_empty(0)
    with torch.no_grad(), torch.autocast(x.device.type, enabled=False):
        head = weight.to(x.dtype)
        if x.is_cuda:
            head = torch.nn.functional.pad(head, (0, 0, 0, -V % ROUND))
        of_head = torch.zeros(head.shape if grads else 0, dtype=wide, device=x.device)
        logits = x.new_empty(min(chunk, N), len(head))
        for at in range(0, N, chunk):
            rows = slice(at, at + chunk)
            some = logits[: len(x[rows])]
            torch.mm(x[rows], head.mT, out=some)
            some = _cross_entropy_(some, targets[rows], losses[rows], V, grads)
            if grads:
                torch.mm(some, head, out=of_x[rows])
                _add_product(of_head, some.mT, x[rows])
    return losses.sum() * share, of_x, of_head[:V].to(weight.dtype), share


@in_chunks.register_fake
def _(x: Tensor, weight: Tensor, targets: Tensor, chunk: int, grads: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    wide = _wide(x.dtype)
    of_x = x.new_empty(x.shape if grads else 0)
    of_weight = weight.new_empty(weight.shape if grads else 0)
    return x.new_empty((), dtype=wide), of_x, of_weight, x.new_empty((), dtype=wide)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*output[1:])
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
    if grad is None:
        return (None,) * 5
    of_x, of_weight, share = ctx.saved_tensors
    factor = (grad * share).view(1, 1)  # two axes, so that it is not rounded to x's dtype first
    needs_x, needs_weight = ctx.needs_input_grad[:2]
    return (
        (of_x * factor).to(of_x.dtype) if needs_x else None,
        (of_weight * factor).to(of_weight.dtype) if needs_weight else None,
        None,
        None,
        None,
    )


in_chunks.register_autograd(_backward, setup_context=_keep)


def _cross_entropy_(logits: Tensor, targets: Tensor, losses: Tensor, V: int, grads: bool) -> Tensor:
    """Each row's loss into `losses`; gives the gradient of the logits, in their memory where that is easy."""
    if logits.is_cuda and logits.dtype is not torch.float64 and _triton():
        from regard.gpt.cross_entropy_kernel import cross_entropy_

        cross_entropy_(logits, targets, losses, V, grads)
        return logits
    counts = targets >= 0
    own = targets.clamp(min=0)[:, None]
    logp = logits[:, :V].log_softmax(-1, dtype=losses.dtype)
    losses.copy_(-logp.gather(1, own)[:, 0] * counts)
    if not grads:
        return logits
    grad = logp.exp_()
    grad.scatter_add_(1, own, grad.new_tensor(-1.0).expand(own.shape))
    grad[~counts] = 0
    if len(logits.mT) == V and grad.dtype is logits.dtype:
        return grad
    logits[:, :V] = grad
    logits[:, V:] = 0
    return logits


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """total += a @ b, where total may be wider than a and b."""
    if a.dtype is total.dtype:
        total.addmm_(a, b)
    elif total.is_cuda:
        torch.ops.aten.addmm.dtype_out(total, a, b, total.dtype, out=total)
    else:
        total += a @ b


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


@cache
def _triton() -> bool:
    try:
        import triton  # noqa: F401
    except ImportError:
        return False
    return True


def _check(x: Tensor, weight: Tensor, targets: Tensor, chunk: int | None) -> None:
    if x.dim() != 2 or weight.dim() != 2 or x.shape[1] != weight.shape[1]:
        raise ValueError(
            f"x is {tuple(x.shape)} and weight {tuple(weight.shape)}, but they must be (N, E) and (V, E); "
            "flatten x to one row a token"
        )
    if targets.shape != x.shape[:1]:
        raise ValueError(f"targets has shape {tuple(targets.shape)} but x has {len(x)} rows; give ({len(x)},)")
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk ({chunk}) must be at least 1")
    # On a GPU this would wait for all that is under way; there the loss becomes NaN instead.
    if x.device.type == "cpu" and not torch.compiler.is_compiling() and bool((targets >= len(weight)).any()):
        raise ValueError(
            f"target {int(targets.max())} is not among the {len(weight)} rows of weight; "
            "was the text tokenised for another model?"
        )

"""The loss of a language model: cross-entropy of the next token, without all logits in memory.

The logits of a whole batch would be by far the largest tensor in training. Here they are computed for a chunk of
tokens at a time, and each chunk is overwritten by its gradient right away: backward only multiplies it by a number.

    loss = mean(logsumexp(logits) − logits[target]);  d loss / d logits = (softmax(logits) − 1(target)) / count
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils._triton import has_triton_package  # tries the import: an installed Triton may be broken

from regard.support.arguments import autocast_dtype

# Bytes of logits at a time. More is not faster: training a model of 124 million parameters on an H200 processed 505,000
# tokens per second with 256 MiB, and 508,000 with 1 GiB or 4 GiB. A CPU has less memory.
CHUNK_BYTES = {"cuda": 1 << 30, "cpu": 128 << 20}
# Tensor cores are several times slower on a width such as 50257, so on a GPU the vocabulary is padded to a multiple.
MULTIPLE = 128


def next_token_loss(
    x: Float[Tensor, "N E"], weight: Float[Tensor, "V E"], targets: Int[Tensor, "N"], chunk: int | None = None
) -> Float[Tensor, ""]:
    """The mean cross-entropy of the next token, from hidden states and the head's weight.

    >>> x, weight = torch.zeros(3, 8), torch.randn(50, 8)
    >>> next_token_loss(x, weight, torch.tensor([4, 7, -1]))  # all logits are 0: log 50
    tensor(3.9120)

    targets: a token id for each row; rows with a negative target are left out of the mean.
    chunk: rows of logits at a time; by default as many as fit in 128 MiB (1 GiB on a GPU).
    Products are in x's dtype, or in autocast's; losses and the weight's gradient are summed in at least float32.
    """
    dtype = autocast_dtype(x.device.type)
    if dtype is not None and x.dtype is not torch.float64:
        x = x.to(dtype)
    _check(x, weight, targets, chunk)
    if chunk is None:
        chunk = rows_at_a_time(len(x), len(weight), x.dtype, x.device.type)
    grads = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
    loss: Tensor = in_chunks(x, weight, targets, chunk, grads)[0]
    return loss


def rows_at_a_time(N: int, V: int, dtype: torch.dtype, kind: str) -> int:
    """Rows in a chunk: as many as fit, divided evenly over the chunks.

    >>> rows_at_a_time(32768, 50257, torch.bfloat16, "cuda")
    8192
    """
    limit = max(MULTIPLE, CHUNK_BYTES.get(kind, CHUNK_BYTES["cpu"]) // (V * dtype.itemsize))
    chunks = max(1, -(-N // limit))
    return max(1, -(-N // chunks))


@torch.library.custom_op(
    "regard::next_token_loss",
    mutates_args=(),
    schema="(Tensor x, Tensor weight, Tensor targets, int chunk, bool grads) -> (Tensor, Tensor, Tensor, Tensor)",
)
def in_chunks(
    x: Tensor, weight: Tensor, targets: Tensor, chunk: int, grads: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The loss and, with `grads`, the gradients of x and weight, to be multiplied by the last result: 1 / count."""
    N, V, wide = len(x), len(weight), torch.promote_types(x.dtype, torch.float32)
    scale = 1 / (targets >= 0).sum().clamp(min=1).to(wide)
    losses = torch.empty(N, dtype=wide, device=x.device)
    grad_x = torch.empty_like(x, memory_format=torch.contiguous_format) if grads else x.new_empty(0)
    with torch.no_grad(), torch.autocast(x.device.type, enabled=False):
        head = weight.to(x.dtype)
        if x.is_cuda:
            head = torch.nn.functional.pad(head, (0, 0, 0, -V % MULTIPLE))
        grad_head = torch.zeros(head.shape if grads else 0, dtype=wide, device=x.device)
        logits = x.new_empty(min(chunk, N), len(head))
        for at in range(0, N, chunk):
            rows = slice(at, at + chunk)
            part = logits[: len(x[rows])]
            torch.mm(x[rows], head.mT, out=part)
            part = _cross_entropy_(part, targets[rows], losses[rows], V, grads)
            if grads:
                torch.mm(part, head, out=grad_x[rows])
                _add_product(grad_head, part.mT, x[rows])
    return losses.sum() * scale, grad_x, grad_head[:V].to(weight.dtype), scale


@in_chunks.register_fake
def _(x: Tensor, weight: Tensor, targets: Tensor, chunk: int, grads: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    loss, scale = (x.new_empty((), dtype=torch.promote_types(x.dtype, torch.float32)) for _ in range(2))
    return loss, x.new_empty(x.shape if grads else 0), weight.new_empty(weight.shape if grads else 0), scale


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*output[1:])
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
    if grad is None:
        return (None,) * 5
    *grads, scale = ctx.saved_tensors  # of x and weight
    factor = (grad * scale).view(1, 1)  # two dimensions, so that type promotion does not round it to x's dtype
    needed = zip(grads, ctx.needs_input_grad[:2], strict=True)
    return (*((one * factor).to(one.dtype) if is_needed else None for one, is_needed in needed), None, None, None)


in_chunks.register_autograd(_backward, setup_context=_keep)


def _cross_entropy_(logits: Tensor, targets: Tensor, losses: Tensor, V: int, grads: bool) -> Tensor:
    """Write each row's loss into `losses`; returns the gradient of the logits, in their memory if possible."""
    if logits.is_cuda and logits.dtype is not torch.float64 and has_triton_package():
        from regard.gpt.cross_entropy_kernel import cross_entropy_

        cross_entropy_(logits, targets, losses, V, grads)
        return logits
    counts = targets >= 0
    index = targets.clamp(min=0)[:, None]
    logp = logits[:, :V].log_softmax(-1, dtype=losses.dtype)
    losses.copy_(-logp.gather(1, index)[:, 0] * counts)
    if not grads:
        return logits
    grad = logp.exp_()
    grad.scatter_add_(1, index, grad.new_tensor(-1.0).expand(index.shape))
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


def _check(x: Tensor, weight: Tensor, targets: Tensor, chunk: int | None) -> None:
    if x.dim() != 2 or weight.dim() != 2 or x.shape[1] != weight.shape[1]:
        raise ValueError(
            f"x is {tuple(x.shape)} and weight {tuple(weight.shape)}, but they must be (N, E) and (V, E); "
            "flatten x to one row per token"
        )
    if targets.shape != x.shape[:1]:
        raise ValueError(f"targets has shape {tuple(targets.shape)} but x has {len(x)} rows; give ({len(x)},)")
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk ({chunk}) must be at least 1")
    # On a GPU, the check would wait for all queued kernels; there the loss becomes NaN instead.
    if x.device.type == "cpu" and not torch.compiler.is_compiling() and bool((targets >= len(weight)).any()):
        raise ValueError(
            f"target {int(targets.max())} is not among the {len(weight)} rows of weight; "
            "was the text tokenised for another model?"
        )

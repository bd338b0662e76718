"""One decoding step on a CPU: a model's operations for the next token, without the modules around them.

A token costs one pass over all weights, so the speed of memory is the limit. torch multiplies a matrix by a single
vector at about half of that speed; the same product as a batch of smaller matrices keeps all cores busy. No weight is
copied.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention.attend import attend
from regard.attention.cache import Cache
from regard.attention.layer import MultiHeadAttention
from regard.gpt.block import Product
from regard.gpt.generate.module_calls import is_unmodified, needs_module_calls
from regard.support.torch_threads import limit_threads

if TYPE_CHECKING:
    from regard.gpt.model import GPT

MIN_BLOCKS = 16  # a matrix is split into at least this many blocks of rows, and a multiple of the number of threads
MIN_SIZE = 1 << 17  # smaller weights stay in the CPU's cache, where a single call is fastest
MAX_BATCH = 8  # larger batches are ordinary matrix products
SMALL_STEP = 1 << 24  # weights × rows in a decoding step, which is limited by memory: about 5 ms for one thread
SMALL_PROMPT = 1 << 30  # weights × tokens of a prompt, which is limited by arithmetic: about 50 ms for one thread


def threads_for(work: int, small: int) -> AbstractContextManager[None]:
    """Let torch use one thread within the block if there is less work than `small`; afterwards as many as before.

    A product over two threads waits for the slower one. Where other programs want the same cores, that costs a time
    slice of the scheduler, milliseconds, at each of the fifty products of a token. What is small depends on sizes alone
    and never on the load: the number of threads can change the last digits of a score.
    """
    return limit_threads(1) if work < small else nullcontext()


class BlockedLinear:
    """A linear layer for a few vectors, its weight split into blocks of rows where that is faster.

    >>> weight, x = torch.randn(3000, 700), torch.randn(1, 700)
    >>> torch.allclose(BlockedLinear(weight)(x), x @ weight.mT, atol=1e-4)
    True
    """

    def __init__(self, weight: Float[Tensor, "out in"], bias: Float[Tensor, "out"] | None = None) -> None:
        self.weight, self.bias = weight, bias
        threads = torch.get_num_threads()
        count = -(-MIN_BLOCKS // threads) * threads
        rows = weight.shape[0] // count
        # Only MKL is known to run a batch faster; without it, torch would multiply the blocks one after the other.
        self.is_split = torch.backends.mkl.is_available() and weight.numel() >= MIN_SIZE and rows > 0
        if self.is_split:
            self.end = end = count * rows
            self.blocks = weight[:end].view(count, rows, -1).mT  # (count, in, rows)
            self.biases = None if bias is None else bias[:end].view(count, 1, rows)
            self.remainder = None if end == len(weight) else (weight[end:], None if bias is None else bias[end:])

    def __call__(self, x: Float[Tensor, "B in"]) -> Float[Tensor, "B out"]:
        """F.linear(x, weight, bias)."""
        if not self.is_split:
            return F.linear(x, self.weight, self.bias)
        batch = x.expand(len(self.blocks), -1, -1)
        out = torch.bmm(batch, self.blocks) if self.biases is None else torch.baddbmm(self.biases, batch, self.blocks)
        # (count, B, rows) → (B, out); a single vector needs no transpose.
        out = out.view(1, self.end) if len(x) == 1 else out.transpose(0, 1).reshape(len(x), self.end)
        return out if self.remainder is None else torch.cat([out, F.linear(x, *self.remainder)], dim=-1)


class CPUStep:
    """Scores for the next token of each row, from the operations of a model's blocks.

    It computes what the modules compute, with a third of their overhead in Python. `supports` says for which models.
    """

    def __init__(self, model: GPT) -> None:
        self.token_embedding, self.position_embedding = model.token_embedding, model.position_embedding
        self.operations = [
            _LinearLayers(operation) if isinstance(operation, Product) else operation.layer
            for operation in model.operations()
        ]

    @staticmethod
    def supports(model: GPT, batch: int) -> bool:
        """Can the modules be skipped? Not where a hook, an adapter, autocast or a trace needs them to be called."""
        weight = model.token_embedding.weight
        return (
            1 <= batch <= MAX_BATCH
            and weight.device.type == "cpu"
            and weight.dtype in (torch.float32, torch.float64)
            and not (needs_module_calls() or torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling())
            and is_unmodified(model)
        )

    def __call__(self, ids: Int[Tensor, "B"], cache: Cache, starts: list[int] | None = None) -> Float[Tensor, "B V"]:
        """Read one token of each row into the cache, and score the next. starts: the length of each row's padding."""
        length = cache.length
        positions = torch.tensor([length] if starts is None else [length - start for start in starts])
        x = F.embedding(ids, self.token_embedding.weight)
        if self.position_embedding is not None:
            x = x + F.embedding(positions, self.position_embedding.weight)
        slots = zip(cache.keys, cache.values, strict=True)
        results = [x]
        for operation in self.operations:
            if isinstance(operation, MultiHeadAttention):
                results = [_attend(operation, results, *next(slots), length, positions, starts)]
                continue
            results = operation(results[0] if operation.norm is None else operation.norm(x))
            if operation.residual:
                x = x + results[0]
        cache.advance(1)
        return results[0]


class _LinearLayers:
    """A Product: a result for each of its weights."""

    def __init__(self, product: Product) -> None:
        self.norm, self.residual = product.norm, product.residual
        self.linears = [BlockedLinear(*weights) for weights in product.weights]
        self.gate = None if product.gate is None else BlockedLinear(*product.gate)
        self.activation = None if product.activation is None else product.activation.function

    def __call__(self, x: Tensor) -> list[Tensor]:
        if self.activation is None:
            return [linear(x) for linear in self.linears]
        if self.gate is None:
            return [self.activation(linear(x)) for linear in self.linears]
        return [self.activation(self.gate(x)) * linear(x) for linear in self.linears]


def _attend(
    layer: MultiHeadAttention,
    qkv: list[Tensor],
    keys: Float[Tensor, "B Hkv capacity D"],
    values: Float[Tensor, "B Hkv capacity D"],
    length: int,
    positions: Int[Tensor, "one_or_B"],
    starts: list[int] | None,
) -> Float[Tensor, "B d_out"]:
    """Write the new keys and values into the cache at `length`, and attend to all keys so far."""
    B, end = len(qkv[0]), length + 1
    q, k, v = (t.view(B, -1, 1, layer.head_dim) for t in qkv)
    if layer.q_norm is not None and layer.k_norm is not None:
        q, k = layer.q_norm(q), layer.k_norm(k)
    if layer.rotary is not None:
        q, k = layer.rotary.rotate(q, k, positions if starts is None else positions[:, None])
    keys[:, :, length:end] = k
    values[:, :, length:end] = v
    options: dict[str, Any] = {"mask": layer.mask, "scale": layer.scale}
    if starts is None:
        context = attend(q, keys[:, :, :end], values[:, :, :end], **options)
    else:  # row by row, each without its padding: no mask is needed, nor a copy of the keys
        rows = (
            attend(q[b : b + 1], keys[b : b + 1, :, start:end], values[b : b + 1, :, start:end], **options)
            for b, start in enumerate(starts)
        )
        context = torch.cat(list(rows))
    return context.reshape(B, -1)

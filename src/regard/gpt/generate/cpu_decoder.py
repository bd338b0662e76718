"""A matrix times one vector, at the speed of memory: a model's next token on a CPU.

A token costs one reading of all weights. torch multiplies a matrix by a single vector with one call that reads them at
about half of what the memory can give; the same product as a batch of lower matrices keeps every core reading. No
weight is copied. Straight strings a model's products together without the modules around them.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention.attend import attend
from regard.attention.cache import Cache
from regard.gpt.block import Block, GatedFeedForward
from regard.gpt.generate.unmodified import looked_at, untouched
from regard.gpt.model import GPT

PARTS = 16  # a matrix is cut into at least so many, and a multiple of the threads
SMALL = 1 << 17  # weights of fewer numbers come from the cache, and one call is quickest
MOST_ROWS = 8  # with more vectors at once, it is a matrix product as any other


class Matrix:
    """A linear layer's weight and bias, to be multiplied by a few vectors.

    >>> weight, x = torch.randn(3000, 700), torch.randn(1, 700)
    >>> torch.allclose(Matrix(weight)(x), x @ weight.mT, atol=1e-4)
    True
    """

    def __init__(self, weight: Float[Tensor, "out in"], bias: Float[Tensor, "out"] | None = None) -> None:
        self.weight, self.bias = weight, bias
        threads = torch.get_num_threads()
        parts = -(-PARTS // threads) * threads
        height = weight.shape[0] // parts
        # Only MKL's batches are known to be better; where there is none, torch would take the parts one by one.
        self.cut = torch.backends.mkl.is_available() and weight.numel() >= SMALL and height > 0
        if self.cut:
            end = parts * height
            self.parts, self.end = weight[:end].view(parts, height, -1).mT, end  # (parts, in, height)
            self.biases = None if bias is None else bias[:end].view(parts, 1, height)
            self.rest = None if end == len(weight) else (weight[end:], None if bias is None else bias[end:])

    def __call__(self, x: Float[Tensor, "B in"]) -> Float[Tensor, "B out"]:
        """F.linear(x, weight, bias)."""
        if not self.cut:
            return F.linear(x, self.weight, self.bias)
        every = x.expand(len(self.parts), -1, -1)
        out = torch.bmm(every, self.parts) if self.biases is None else torch.baddbmm(self.biases, every, self.parts)
        # (parts, B, height) → (B, out); for one vector the numbers are in order as they are.
        out = out.view(1, self.end) if len(x) == 1 else out.transpose(0, 1).reshape(len(x), self.end)
        return out if self.rest is None else torch.cat([out, F.linear(x, *self.rest)], dim=-1)


class Straight:
    """A model's products for one token of each row, one after the other.

    It computes what the modules compute, in a third of their time in Python. Only for models in which nobody else has
    a say: `fits` tells.
    """

    def __init__(self, model: GPT) -> None:
        self.model = model
        self.layers = [_Layer(block) for block in model.blocks if isinstance(block, Block)]
        self.norm, self.head = model.final_norm, Matrix(model.head_weight)
        self.places = model.position_embedding

    @staticmethod
    def fits(model: GPT, batch: int) -> bool:
        """May the products stand for the modules? Not where a hook, an adapter, autocast or a trace wants them called."""
        weight = model.token_embedding.weight
        return (
            1 <= batch <= MOST_ROWS
            and weight.device.type == "cpu"
            and weight.dtype in (torch.float32, torch.float64)
            and not (looked_at() or torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling())
            and untouched(model)
        )

    def __call__(self, ids: Int[Tensor, "B"], cache: Cache, starts: list[int] | None = None) -> Float[Tensor, "B V"]:
        """Read one token of each row, and score the next. `starts`: how many places of each row's cache are padding."""
        length = cache.length
        places = torch.tensor([length] if starts is None else [length - start for start in starts])
        x = F.embedding(ids, self.model.token_embedding.weight)
        if self.places is not None:
            x = x + F.embedding(places, self.places.weight)
        for i, layer in enumerate(self.layers):
            x = layer(x, cache.keys[i], cache.values[i], length, places, starts)
        cache.advance(1)
        return self.head(self.norm(x))


class _Layer:
    """One block."""

    def __init__(self, block: Block) -> None:
        attention, feed = block.attention, block.feed_forward
        self.attention = attention
        self.norms = block.attention_norm, block.feed_forward_norm
        self.heads = attention.num_heads, attention.num_kv_heads, attention.num_kv_heads
        one = attention.joined()
        three = (attention.W_query, attention.W_key, attention.W_value)
        self.qkv = [Matrix(m.weight, m.bias) for m in three] if one is None else [Matrix(*one)]
        self.out = Matrix(attention.out_proj.weight, attention.out_proj.bias)
        self.up, self.down = (Matrix(m.weight, m.bias) for m in (feed.up, feed.down))
        self.gate = Matrix(feed.gate.weight, feed.gate.bias) if isinstance(feed, GatedFeedForward) else None

    def __call__(
        self, x: Tensor, keys: Tensor, values: Tensor, length: int, places: Tensor, starts: list[int] | None
    ) -> Tensor:
        x = x + self.out(self._look(self.norms[0](x), keys, values, length, places, starts))
        wide = self.norms[1](x)
        if self.gate is None:
            return x + self.down(F.gelu(self.up(wide), approximate="tanh"))
        return x + self.down(F.silu(self.gate(wide)) * self.up(wide))

    def _look(
        self, x: Tensor, keys: Tensor, values: Tensor, length: int, places: Tensor, starts: list[int] | None
    ) -> Tensor:
        layer, end = self.attention, length + 1
        qkv = self.qkv[0](x) if len(self.qkv) == 1 else torch.cat([product(x) for product in self.qkv], dim=-1)
        q, k, v = qkv.view(len(x), -1, 1, layer.head_dim).split_with_sizes(self.heads, 1)  # (B, heads, 1, D)
        if layer.q_norm is not None and layer.k_norm is not None:
            q, k = layer.q_norm(q), layer.k_norm(k)
        if layer.rotary is not None:
            q, k = layer.rotary.turn(q, k, places if starts is None else places[:, None])
        keys[:, :, length:end] = k
        values[:, :, length:end] = v
        if starts is None:
            heads = attend(q, keys[:, :, :end], values[:, :, :end], mask=layer.rule, scale=layer.scale)
        else:  # each row sees its own keys and no mask is needed, nor a copy of the keys without the padding
            heads = torch.cat([
                attend(q[b : b + 1], keys[b : b + 1, :, s:end], values[b : b + 1, :, s:end], mask=layer.rule, scale=layer.scale)
                for b, s in enumerate(starts)
            ])  # fmt: skip
        return heads.reshape(len(x), -1)

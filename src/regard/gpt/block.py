"""A transformer block: look around, then think it over. Each half is added to what was there before.

Adds to attention: a feed-forward that works on every token alone, norms before both (pre-norm), and residuals.
x → x + attention(norm(x)) → x + feed_forward(norm(x)).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.cache import Slot
from regard.attention.layer import MultiHeadAttention
from regard.attention.masks import Mask
from regard.gpt.config import GPTConfig
from regard.steps import step


class FeedForward(nn.Module):
    """Two linear layers with a bend between them: GPT-2's.

    >>> import torch
    >>> FeedForward(d_model=8, d_ff=32)(torch.zeros(1, 3, 8)).shape
    torch.Size([1, 3, 8])

    out = down(gelu(up(x))), with the tanh form of gelu that GPT-2 was trained with.  (arXiv:1606.08415.)
    """

    def __init__(self, d_model: int, d_ff: int, bias: bool = True) -> None:
        super().__init__()
        self.up = nn.Linear(d_model, d_ff, bias=bias)
        self.down = nn.Linear(d_ff, d_model, bias=bias)

    def forward(self, x: Float[Tensor, "B T E"]) -> Float[Tensor, "B T E"]:
        """Widen, bend, narrow."""
        out: Tensor = self.down(F.gelu(self.up(x), approximate="tanh"))
        return step("feed-forward", out, why="each token alone")


class GatedFeedForward(nn.Module):
    """A feed-forward whose bend is a gate: Llama's SwiGLU.

    >>> import torch
    >>> GatedFeedForward(d_model=8, d_ff=32)(torch.zeros(1, 3, 8)).shape
    torch.Size([1, 3, 8])

    out = down(silu(gate(x)) · up(x)).  (arXiv:2002.05202, section 2.)
    """

    def __init__(self, d_model: int, d_ff: int, bias: bool = False) -> None:
        super().__init__()
        self.gate = nn.Linear(d_model, d_ff, bias=bias)
        self.up = nn.Linear(d_model, d_ff, bias=bias)
        self.down = nn.Linear(d_ff, d_model, bias=bias)

    def forward(self, x: Float[Tensor, "B T E"]) -> Float[Tensor, "B T E"]:
        """Widen twice, let one gate the other, narrow."""
        out: Tensor = self.down(F.silu(self.gate(x)) * self.up(x))
        return step("feed-forward", out, why="each token alone")


class Block(nn.Module):
    """Attention and feed-forward, each behind a norm and added to its input.

    >>> import torch
    >>> block = Block(GPTConfig.preset("tiny"))
    >>> block(torch.zeros(1, 5, 256)).shape
    torch.Size([1, 5, 256])
    """

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.attention_norm = norm(config)
        self.attention = MultiHeadAttention(
            config.d_model,
            config.d_model,
            config.context_length,
            config.dropout,
            config.num_heads,
            config.qkv_bias,
            num_kv_heads=config.kv_heads,
            window=config.window,
            rotary=config.rotary,
            qk_norm=config.qk_norm,
            out_bias=config.bias,
        )
        self.feed_forward_norm = norm(config)
        kind = GatedFeedForward if config.feed_forward == "swiglu" else FeedForward
        self.feed_forward = kind(config.d_model, config.inner, config.bias)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self,
        x: Float[Tensor, "B T E"],
        *,
        mask: Mask | Tensor | Sequence[int] | None = None,
        cache: Slot | None = None,
        positions: Int[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "B T E"]:
        """Look around, then think it over."""
        near = step("attention norm", normed(self.attention_norm, x), why="lengths evened out")
        around = self.dropout(self.attention(near, mask=mask, cache=cache, positions=positions))
        x = step("attended", x + around, why="added to what was there")
        near = step("second norm", normed(self.feed_forward_norm, x), why="lengths evened out")
        return step("block out", x + self.dropout(self.feed_forward(near)), why="the block's result")


def norm(config: GPTConfig) -> nn.LayerNorm | nn.RMSNorm:
    """The norm that a config asks for: LayerNorm centres and scales, RMSNorm only scales."""
    if config.norm == "rms":
        return nn.RMSNorm(config.d_model, eps=config.norm_eps)
    return nn.LayerNorm(config.d_model, eps=config.norm_eps, bias=config.bias)


def normed(norm: nn.Module, x: Float[Tensor, "B T E"]) -> Float[Tensor, "B T E"]:
    """norm(x), in the wider type of the norm's weight where autocast has made x narrow."""
    weight = norm.weight
    assert isinstance(weight, Tensor)
    out: Tensor = norm(x if x.dtype is weight.dtype else x.to(weight.dtype))
    return out

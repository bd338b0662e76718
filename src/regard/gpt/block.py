"""A transformer block: attention, then a feed-forward network, each added to its input.

Adds to attention: a feed-forward that works on each token separately, norms before both (pre-norm), and residuals.
x → x + attention(norm(x)) → x + feed_forward(norm(x)).

`Block.forward` runs the modules. `Block.operations` describes the same computation as plain values, for the decoders
that run it without modules (generate/cpu_step.py, generate/gpu_step.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.cache import Slot
from regard.attention.layer import MultiHeadAttention
from regard.attention.masks import Mask
from regard.gpt.activations import ACTIVATIONS, Activation, FeedForwardName
from regard.gpt.config import GPTConfig
from regard.steps import step

Norm = nn.LayerNorm | nn.RMSNorm
AnyMask: TypeAlias = Mask | Tensor | Sequence[int] | None  # Sequence: the number of keys of each row
Positions: TypeAlias = Int[Tensor, "..."] | None  # (T,) or (B, T)


class FeedForward(nn.Module):
    """Two linear layers with an activation between them: GPT-2's.

    >>> import torch
    >>> FeedForward(d_model=8, d_ff=32)(torch.zeros(1, 3, 8)).shape
    torch.Size([1, 3, 8])

    out = down(activation(up(x))).
    """

    def __init__(self, d_model: int, d_ff: int, bias: bool = True, kind: FeedForwardName = "gelu") -> None:
        super().__init__()
        self.kind = kind
        self.up = nn.Linear(d_model, d_ff, bias=bias)
        self.down = nn.Linear(d_ff, d_model, bias=bias)

    def forward(self, x: Float[Tensor, "B T E"]) -> Float[Tensor, "B T E"]:
        """Project up, apply the activation, project down."""
        out: Tensor = self.down(ACTIVATIONS[self.kind].function(self.up(x)))
        return step("feed-forward", out, why="each token alone")


class GatedFeedForward(nn.Module):
    """A feed-forward with a gate: Llama's SwiGLU.

    >>> import torch
    >>> GatedFeedForward(d_model=8, d_ff=32)(torch.zeros(1, 3, 8)).shape
    torch.Size([1, 3, 8])

    out = down(activation(gate(x)) · up(x)).
    """

    def __init__(self, d_model: int, d_ff: int, bias: bool = False, kind: FeedForwardName = "swiglu") -> None:
        super().__init__()
        self.kind = kind
        self.gate = nn.Linear(d_model, d_ff, bias=bias)
        self.up = nn.Linear(d_model, d_ff, bias=bias)
        self.down = nn.Linear(d_ff, d_model, bias=bias)

    def forward(self, x: Float[Tensor, "B T E"]) -> Float[Tensor, "B T E"]:
        """Project up twice, multiply one by the activation of the other, project down."""
        out: Tensor = self.down(ACTIVATIONS[self.kind].function(self.gate(x)) * self.up(x))
        return step("feed-forward", out, why="each token alone")


class Block(nn.Module):
    """Attention and feed-forward, each with a norm before it and a residual around it.

    >>> import torch
    >>> block = Block(GPTConfig.preset("tiny"))
    >>> block(torch.zeros(1, 5, 256)).shape
    torch.Size([1, 5, 256])
    """

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.attention_norm = make_norm(config)
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
        self.feed_forward_norm = make_norm(config)
        feed_forward = GatedFeedForward if ACTIVATIONS[config.feed_forward].gated else FeedForward
        self.feed_forward = feed_forward(config.d_model, config.inner, config.bias, config.feed_forward)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self, x: Float[Tensor, "B T E"], *, mask: AnyMask = None, cache: Slot | None = None, positions: Positions = None
    ) -> Float[Tensor, "B T E"]:
        """Attend to other tokens, then process each token separately."""
        normed = step("attention norm", apply_norm(self.attention_norm, x), why="each vector normalized")
        attended = self.dropout(self.attention(normed, mask=mask, cache=cache, positions=positions))
        x = step("attended", x + attended, why="added to the input")
        normed = step("second norm", apply_norm(self.feed_forward_norm, x), why="each vector normalized")
        return step("block out", x + self.dropout(self.feed_forward(normed)), why="the block's result")

    def operations(self) -> tuple[Operation, ...]:
        """What `forward` computes in eval mode, as a sequence for decoders that call no modules."""
        attention, feed_forward = self.attention, self.feed_forward
        qkv = (attention.W_query, attention.W_key, attention.W_value)
        gate = LinearWeights.of(feed_forward.gate) if isinstance(feed_forward, GatedFeedForward) else None
        activation = ACTIVATIONS[feed_forward.kind]
        return (
            Product(tuple(map(LinearWeights.of, qkv)), norm=self.attention_norm),
            Attend(attention),
            Product((LinearWeights.of(attention.out_proj),), residual=True),
            Product(
                (LinearWeights.of(feed_forward.up),), norm=self.feed_forward_norm, activation=activation, gate=gate
            ),
            Product((LinearWeights.of(feed_forward.down),), residual=True),
        )


class LinearWeights(NamedTuple):
    """The weight and bias of a linear layer."""

    weight: Float[Tensor, "out in"]
    bias: Float[Tensor, "out"] | None = None

    @staticmethod
    def of(layer: nn.Linear) -> LinearWeights:
        """The parameters of a linear layer, not copied."""
        return LinearWeights(layer.weight, layer.bias)


@dataclass(frozen=True)
class Product:
    """One or more linear layers over the same input, whose outputs are concatenated.

    out = activation(input · weightᵀ + bias), or activation(input · gateᵀ + its bias) · (input · weightᵀ + bias).

    norm: the input is norm(x), where x is the residual stream; without one, it is the result of the operation before.
    residual: the result is added to x.
    """

    weights: tuple[LinearWeights, ...]
    norm: Norm | None = None
    activation: Activation | None = None
    gate: LinearWeights | None = None
    residual: bool = False


@dataclass(frozen=True)
class Attend:
    """Attention over projected queries, keys and values: everything in `layer` but its four projections."""

    layer: MultiHeadAttention


Operation = Product | Attend


def make_norm(config: GPTConfig) -> Norm:
    """The norm that a config asks for: LayerNorm subtracts the mean and scales, RMSNorm only scales."""
    if config.norm == "rms":
        return nn.RMSNorm(config.d_model, eps=config.norm_eps)
    return nn.LayerNorm(config.d_model, eps=config.norm_eps, bias=config.bias)


def apply_norm(norm: nn.Module, x: Float[Tensor, "B T E"]) -> Float[Tensor, "B T E"]:
    """norm(x), in the dtype of the norm's weight: under autocast x may be narrower."""
    weight = norm.weight
    assert isinstance(weight, Tensor)
    out: Tensor = norm(x if x.dtype is weight.dtype else x.to(weight.dtype))
    return out

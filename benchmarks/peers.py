"""The contenders: one causal attention layer, eight implementations, all with the same weights.

A contender that is wrong is not timed: outputs and input gradients are compared with float64 first. None has dropout.
None has a bias in its projections unless it cannot be built without one; those biases are 0.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

import regard
from regard.attention.masks import dense

OURS = "regard"
TEXTBOOK = "textbook layer"
COMPILED = " compiled"  # the suffix of a contender that went through torch.compile


@dataclass(frozen=True)
class Shape:
    """The size of one layer and of its input."""

    width: int
    heads: int
    batch: int
    tokens: int
    name: str = ""

    def __post_init__(self) -> None:
        if min(self.width, self.heads, self.batch, self.tokens) < 1 or self.width % self.heads:
            raise ValueError(
                f"width ({self.width}) must be a multiple of heads ({self.heads}), and all sizes at least 1"
            )

    def __str__(self) -> str:
        return f"{self.name or f'{self.width} wide, {self.heads} heads'}, B={self.batch} T={self.tokens}"


@dataclass(frozen=True)
class Weights:
    """Four (E, E) matrices in the layout of nn.Linear, scaled such that scores have variance 1."""

    query: Tensor
    key: Tensor
    value: Tensor
    out: Tensor

    @classmethod
    def random(cls, width: int, dtype: torch.dtype, seed: int = 0) -> Weights:
        """Random weights by seed, rounded to dtype so that every contender has exactly the same."""
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randn(4, width, width, generator=generator) / math.sqrt(width)
        return cls(*drawn.to(dtype).unbind())

    def qkv(self) -> Tensor:
        """The matrices of queries, keys and values as one, (3E, E)."""
        return torch.cat([self.query, self.key, self.value])


Builder = Callable[[Shape, Weights], nn.Module]


class TextbookLayer(nn.Module):
    """The layer as textbooks have it: every step is a tensor, and all weights are in memory."""

    mask: Tensor

    def __init__(self, width: int, tokens: int, heads: int) -> None:
        super().__init__()
        self.heads, self.head_dim = heads, width // heads
        self.W_query = nn.Linear(width, width, bias=False)
        self.W_key = nn.Linear(width, width, bias=False)
        self.W_value = nn.Linear(width, width, bias=False)
        self.out_proj = nn.Linear(width, width)
        self.register_buffer("mask", torch.ones(tokens, tokens, dtype=torch.bool).triu(1))  # True = hidden

    def forward(self, x: Float[Tensor, "B T E"]) -> Float[Tensor, "B T E"]:
        """Project, split, compute scores, mask, softmax, mix values, merge heads, project."""
        B, T, E = x.shape
        q, k, v = (
            linear(x).view(B, T, self.heads, self.head_dim).transpose(1, 2)
            for linear in (self.W_query, self.W_key, self.W_value)
        )
        scores = (q @ k.transpose(2, 3)).masked_fill_(self.mask[:T, :T], -torch.inf)
        weights = torch.softmax(scores / self.head_dim**0.5, dim=-1)
        context = (weights @ v).transpose(1, 2).reshape(B, T, E)
        out: Tensor = self.out_proj(context)
        return out


class BareLayer(nn.Module):
    """One projection to queries, keys and values, and SDPA: the shortest layer possible.

    The projection is divided into three either by `permute` of one view or by `split` of the last axis.
    """

    def __init__(self, width: int, heads: int, by: str) -> None:
        super().__init__()
        self.heads, self.head_dim, self.by = heads, width // heads, by
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out_proj = nn.Linear(width, width)

    def forward(self, x: Float[Tensor, "B T E"]) -> Float[Tensor, "B T E"]:
        """Project, attend, project."""
        B, T, E = x.shape
        if self.by == "permute":
            q, k, v = self.qkv(x).view(B, T, 3, self.heads, self.head_dim).permute(2, 0, 3, 1, 4).unbind(0)
        else:
            q, k, v = (t.view(B, T, self.heads, self.head_dim).transpose(1, 2) for t in self.qkv(x).split(E, dim=-1))
        context = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = self.out_proj(context.transpose(1, 2).reshape(B, T, E))
        return out


class TorchLayer(nn.Module):
    """torch.nn.MultiheadAttention; with `weights` it also returns the weights of every head."""

    mask: Tensor

    def __init__(self, shape: Shape, weights: bool) -> None:
        super().__init__()
        self.weights = weights
        self.attention = nn.MultiheadAttention(shape.width, shape.heads, bias=False, batch_first=True)
        hidden = torch.ones(shape.tokens, shape.tokens, dtype=torch.bool).triu(1)  # True = hidden
        self.register_buffer("mask", hidden)

    def forward(self, x: Float[Tensor, "B T E"]) -> Float[Tensor, "B T E"]:
        """Self-attention under the causal mask."""
        out: Tensor = self.attention(
            x, x, x, need_weights=self.weights, attn_mask=self.mask, is_causal=True, average_attn_weights=False
        )[0]
        return out


class FirstOutput(nn.Module):
    """A layer that returns a tuple, reduced to its first element."""

    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, x: Float[Tensor, "B T E"]) -> Float[Tensor, "B T E"]:
        """The layer's output alone."""
        result = self.attention(x)
        out: Tensor = result if isinstance(result, Tensor) else result[0]
        return out


def _ours(shape: Shape, weights: Weights) -> nn.Module:
    width = shape.width
    return _fill(regard.MultiHeadAttention(width, width, shape.tokens, dropout=0.0, num_heads=shape.heads), weights)


def _textbook(shape: Shape, weights: Weights) -> nn.Module:
    return _fill(TextbookLayer(shape.width, shape.tokens, shape.heads), weights)


def _fill(layer: nn.Module, weights: Weights) -> nn.Module:
    _set(layer.get_submodule("W_query"), weights.query)
    _set(layer.get_submodule("W_key"), weights.key)
    _set(layer.get_submodule("W_value"), weights.value)
    _set(layer.get_submodule("out_proj"), weights.out)
    return layer


def _torch(shape: Shape, weights: Weights) -> nn.Module:
    return _fill_torch(TorchLayer(shape, weights=False), weights)


def _torch_weights(shape: Shape, weights: Weights) -> nn.Module:
    return _fill_torch(TorchLayer(shape, weights=True), weights)


def _fill_torch(layer: TorchLayer, weights: Weights) -> nn.Module:
    with torch.no_grad():
        layer.attention.in_proj_weight.copy_(weights.qkv())
    _set(layer.attention.out_proj, weights.out)
    return layer


def _transformers(shape: Shape, weights: Weights) -> nn.Module:
    with _quiet():
        from transformers import GPT2Config
        from transformers.models.gpt2.modeling_gpt2 import GPT2Attention
    config = GPT2Config(
        n_embd=shape.width,
        n_head=shape.heads,
        n_positions=shape.tokens,
        attn_pdrop=0.0,
        resid_pdrop=0.0,
        attn_implementation="sdpa",
    )
    layer: nn.Module = GPT2Attention(config, layer_idx=0)
    for part, weight in (("c_attn", weights.qkv()), ("c_proj", weights.out)):
        conv = layer.get_submodule(part)
        _set(conv, weight.T)  # Conv1D keeps (in, out)
    return FirstOutput(layer)


def _x_transformers(shape: Shape, weights: Weights) -> nn.Module:
    with _quiet():
        from x_transformers.x_transformers import Attention
    head_dim = shape.width // shape.heads
    layer: nn.Module = Attention(dim=shape.width, heads=shape.heads, dim_head=head_dim, causal=True, flash=True)
    for part, weight in (("q", weights.query), ("k", weights.key), ("v", weights.value), ("out", weights.out)):
        _set(layer.get_submodule(f"to_{part}"), weight)
    return FirstOutput(layer)


def _bare(by: str) -> Builder:
    def build(shape: Shape, weights: Weights) -> nn.Module:
        layer = BareLayer(shape.width, shape.heads, by)
        _set(layer.qkv, weights.qkv())
        _set(layer.out_proj, weights.out)
        return layer

    return build


CONTENDERS: dict[str, Builder] = {
    OURS: _ours,
    TEXTBOOK: _textbook,
    "nn.MHA": _torch,
    "nn.MHA weights": _torch_weights,
    "transformers": _transformers,
    "x-transformers": _x_transformers,
    "bare permute": _bare("permute"),
    "bare split": _bare("split"),
}
# These keep tensors of B × H × T × T: at most so many at once in forward and backward.
SQUARES = {TEXTBOOK: 5, "nn.MHA weights": 5}


def memory_needed(name: str, shape: Shape, dtype: torch.dtype) -> int:
    """Roughly the bytes of one step, to decide whether to try it. Not reported."""
    squares = SQUARES.get(name.removesuffix(COMPILED), 0)
    size = torch.finfo(dtype).bits // 8
    across = shape.batch * shape.heads * shape.tokens**2
    return size * (squares * across + 12 * shape.batch * shape.tokens * shape.width + 8 * shape.width**2)


@dataclass(frozen=True)
class LayerQuestion:
    """An input, a gradient of the output, and the expected results for some rows, in float64."""

    x: Float[Tensor, "B T E"]
    grad: Float[Tensor, "B T E"]  # 0 in other rows
    rows: Tensor
    out: Float[Tensor, "B rows E"]
    x_grad: Float[Tensor, "B T E"]


@dataclass(frozen=True)
class Distance:
    """Relative distance from float64: of the worst row of the output, and of the input gradient."""

    out: float
    x_grad: float


# Relative. A correct contender stays below a third of its dtype's tolerance; a wrong one is near 1.
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}


def ask(shape: Shape, weights: Weights, dtype: torch.dtype, device: torch.device | str, seed: int = 1) -> LayerQuestion:
    """Draw an input and compute the expected results for at most 64 rows: T × T weights in float64 would not fit."""
    generator = torch.Generator().manual_seed(seed)
    size = (shape.batch, shape.tokens, shape.width)
    x = torch.randn(size, generator=generator).to(device, dtype)
    if shape.tokens <= 64:
        rows = torch.arange(shape.tokens)
    else:
        inner = torch.randperm(shape.tokens - 2, generator=generator)[:62] + 1
        rows = torch.cat([torch.tensor([0, shape.tokens - 1]), inner]).sort().values
    rows = rows.to(device)
    grad = torch.zeros(size).to(device, dtype)
    grad[:, rows] = torch.randn(shape.batch, len(rows), shape.width, generator=generator).to(device, dtype)

    exact = x.double().requires_grad_()

    def project(source: Tensor, weight: Tensor) -> Tensor:
        flat = F.linear(source, weight.to(device).double())
        return flat.view(*flat.shape[:2], shape.heads, -1).transpose(1, 2)

    allowed = torch.arange(shape.tokens, device=rows.device) <= rows[:, None]
    q, k, v = project(exact[:, rows], weights.query), project(exact, weights.key), project(exact, weights.value)
    context, _ = regard.attend_in_steps(q, k, v, mask=dense(allowed))
    out = F.linear(context.transpose(1, 2).flatten(2), weights.out.to(device).double())
    (x_grad,) = torch.autograd.grad(out, exact, grad[:, rows].double())
    return LayerQuestion(x, grad, rows, out.detach(), x_grad)


def distance(layer: nn.Module, question: LayerQuestion) -> Distance:
    """Run a contender without and with gradients, and compare it with the expected results."""
    with torch.no_grad():
        out = layer(question.x)[:, question.rows].double()
    error = (out - question.out).norm(dim=-1) / question.out.norm(dim=-1)
    x = question.x.detach().requires_grad_()
    (x_grad,) = torch.autograd.grad(layer(x), x, question.grad)
    return Distance(float(error.max()), float((x_grad.double() - question.x_grad).norm() / question.x_grad.norm()))


def refusal(away: Distance, dtype: torch.dtype) -> str | None:
    """Why a contender at this distance may not be timed, or None.

    >>> refusal(Distance(out=0.7, x_grad=0.0), torch.float32)
    'not timed: its output is 0.7 away from float64, and 0.0001 is allowed in float32'
    """
    limit = TOLERANCE[dtype]
    for what, far in (("output", away.out), ("input gradient", away.x_grad)):
        if not far <= limit:  # NaN is refused too
            name = str(dtype).removeprefix("torch.")
            return f"not timed: its {what} is {far:.2g} away from float64, and {limit:g} is allowed in {name}"
    return None


def _set(module: nn.Module, weight: Tensor) -> None:
    with torch.no_grad():
        module.get_parameter("weight").copy_(weight)
        for name, p in module.named_parameters(recurse=False):
            if name == "bias":
                p.zero_()


@contextmanager
def _quiet() -> Iterator[None]:
    """Ignore the warnings that other libraries raise when they are imported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield

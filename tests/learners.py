"""Attention modules as people write them, for adopt() to take over; and a check that two compute the same."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from helpers import Textbook
from regard.attention.layer import MultiHeadAttention


def mix(q: Tensor, k: Tensor, v: Tensor, hidden: Tensor | None = None, divide: float | None = None) -> Tensor:
    scores = q @ k.mT / (math.sqrt(q.shape[-1]) if divide is None else divide)
    if hidden is not None:
        scores = scores.masked_fill(hidden, -torch.inf)
    return scores.softmax(-1) @ v


def split(t: Tensor, heads: int) -> Tensor:
    return t.view(*t.shape[:2], heads, -1).transpose(1, 2)


def join(t: Tensor) -> Tensor:
    return t.transpose(1, 2).flatten(2)


class Ladder(Textbook):
    """The textbook layer with sizes of its own."""

    def __init__(self, d_in=5, d_out=12, context_length=11, dropout=0.1, num_heads=3, qkv_bias=False, divide=None):
        super().__init__(d_in, d_out, context_length, dropout, num_heads, qkv_bias, divide)


class SelfAttention(nn.Module):
    def __init__(self, d_in=5, d_out=3, qkv_bias=False):
        super().__init__()
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)

    def forward(self, x):
        return mix(self.W_query(x), self.W_key(x), self.W_value(x))


class CausalAttention(SelfAttention):
    def __init__(self, d_in=5, d_out=3, context_length=11, dropout=0.3, qkv_bias=False):
        super().__init__(d_in, d_out, qkv_bias)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("mask", torch.triu(torch.ones(context_length, context_length), diagonal=1))

    def forward(self, x):
        T = x.shape[1]
        return mix(self.W_query(x), self.W_key(x), self.W_value(x), self.mask.bool()[:T, :T])


class Easy(nn.Module):
    """q_linear, k_linear, v_linear, out_proj; no mask."""

    def __init__(self, d_model=10, num_heads=2):
        super().__init__()
        self.num_heads = num_heads
        self.q_linear, self.k_linear = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.v_linear, self.out_proj = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)

    def forward(self, x):
        q, k, v = (split(W(x), self.num_heads) for W in (self.q_linear, self.k_linear, self.v_linear))
        return self.out_proj(join(mix(q, k, v)))


class Fast(nn.Module):
    """One qkv_proj; mask == 0 hides. `head_by_head` packs it as (heads, 3, head_dim)."""

    def __init__(self, d_model=10, num_heads=2, head_by_head=False, divide=None):
        super().__init__()
        self.num_heads, self.head_by_head, self.divide = num_heads, head_by_head, divide
        self.qkv_proj, self.out_proj = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        qkv = self.qkv_proj(x)
        if self.head_by_head:
            q, k, v = split(qkv, self.num_heads).chunk(3, dim=-1)
        else:
            q, k, v = (split(t, self.num_heads) for t in qkv.chunk(3, dim=-1))
        return self.out_proj(join(mix(q, k, v, None if mask is None else mask == 0, self.divide)))


class Assignment(nn.Module):
    """W_q, W_k, W_v, W_o; returns (output, attention). −1e9 hides, and √d_k is a float32 tensor."""

    def __init__(self, d_model=10, num_heads=2):
        super().__init__()
        self.num_heads, self.d_k = num_heads, d_model // num_heads
        self.W_q, self.W_k = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.W_v, self.W_o = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)

    def split_heads(self, x):
        return split(x, self.num_heads)

    def forward(self, x, mask=None):
        q, k, v = (self.split_heads(W(x)) for W in (self.W_q, self.W_k, self.W_v))
        scores = q @ k.mT / torch.sqrt(torch.tensor(self.d_k, dtype=torch.float32))
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        attention = scores.softmax(-1)
        return self.W_o(join(attention @ v)), attention


class Named(nn.Module):
    """Any names, for the table; keys may be narrower. `names` is (q, k, v, out) or (qkv, out)."""

    def __init__(self, names, d_model=12, num_heads=3, num_kv_heads=3, out=None, bias=False, **sizes):
        super().__init__()
        self.names, self.heads, self.kv = names, num_heads, num_kv_heads
        width = d_model // num_heads * num_kv_heads
        widths = (d_model, width, width) if len(names) == 4 else (d_model + 2 * width,)
        for name, size in zip(names, widths, strict=False):
            self.add_module(name, nn.Linear(d_model, size, bias=bias))
        self.add_module(names[-1], out or nn.Linear(d_model, d_model, bias=bias))

    def forward(self, x):
        *projections, out = (getattr(self, name) for name in self.names)
        q, k, v = (
            torch.cat([p(x) for p in projections], -1)
            .unflatten(-1, (self.heads + 2 * self.kv, -1))
            .transpose(1, 2)
            .split((self.heads, self.kv, self.kv), dim=1)
        )
        k, v = (t.repeat_interleave(self.heads // self.kv, dim=1) for t in (k, v))
        return out(join(mix(q, k, v)))


def gpt2(implementation="eager", is_cross_attention=False, **options):
    """transformers' GPT2Attention, small."""
    modeling = pytest.importorskip("transformers.models.gpt2.modeling_gpt2")
    config = modeling.GPT2Config(n_embd=15, n_head=3, n_positions=13, attn_pdrop=0.2, resid_pdrop=0.4, **options)
    config._attn_implementation = implementation
    return modeling.GPT2Attention(config, layer_idx=4, is_cross_attention=is_cross_attention)


def random_x(width: int, B: int = 2, T: int = 7, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(B, T, width, dtype=dtype, generator=torch.Generator().manual_seed(1))


def assert_same(module: nn.Module, layer: MultiHeadAttention, d_in: int, *args: Any) -> None:
    """Values, and gradients of the input and of the queries' weight, in float64 and in eval()."""
    theirs, ours = copy.deepcopy(module).double().eval(), copy.deepcopy(layer).double().eval()
    x, y = random_x(d_in).requires_grad_(), random_x(d_in).requires_grad_()
    out = theirs(x, *args)
    out = out[0] if isinstance(out, tuple) else out
    result = ours(y)
    torch.testing.assert_close(result, out, rtol=1e-6, atol=1e-7)
    out.square().sum().backward()
    result.square().sum().backward()
    torch.testing.assert_close(y.grad, x.grad, rtol=1e-6, atol=1e-6)


TRIL = torch.ones(7, 7).tril()

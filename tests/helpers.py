"""What several tests need: random inputs, attention by explicit loops, the textbook's layer, the routes taken."""

import math
from contextlib import contextmanager

import pytest
import torch
from torch import nn

from regard.attention.formula import attend_in_steps
from regard.attention.observers import observe

says_it_ourselves = pytest.mark.usefixtures("without_shape_checks")


def random_qkv(B, H, T, S, D, Hkv=None, dtype=torch.float64, requires_grad=False):
    """Random queries (B, H, T, D), keys and values (B, Hkv, S, D)."""
    Hkv = H if Hkv is None else Hkv
    shapes = ((B, H, T, D), (B, Hkv, S, D), (B, Hkv, S, D))
    return tuple(torch.randn(shape, dtype=dtype, requires_grad=requires_grad) for shape in shapes)


def with_gradients(function, q, k, v):
    """function(q, k, v), and the gradients of q, k and v for one fixed random gradient of the result."""
    q, k, v = (t.detach().requires_grad_() for t in (q, k, v))
    out = function(q, k, v)
    above = torch.randn(out.shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64).to(out.dtype)
    return out.detach(), *torch.autograd.grad(out, (q, k, v), above, materialize_grads=True)


@contextmanager
def paths_taken():
    """The names of the routes that attend() takes inside, in order."""
    names = []
    with observe(lambda call, route: names.append(route.name)):
        yield names


def by_loops(q, k, v, allowed, scale=None, slopes=None):
    """Attention with nothing but Python's own arithmetic: context and weights."""
    (B, H, T, D), (Hkv, S) = q.shape, k.shape[1:3]
    scale = 1 / math.sqrt(D) if scale is None else scale
    context, weights = torch.zeros(B, H, T, D, dtype=q.dtype), torch.zeros(B, H, T, S, dtype=q.dtype)
    for b in range(B):
        for h in range(H):
            g = h // (H // Hkv)
            for i in range(T):
                seen = [j for j in range(S) if allowed[b, h, i, j]]
                scores = [sum(float(q[b, h, i, d] * k[b, g, j, d]) for d in range(D)) * scale for j in seen]
                if slopes is not None:
                    scores = [s - float(slopes[h]) * abs(i + S - T - j) for s, j in zip(scores, seen, strict=True)]
                total = sum(math.exp(s) for s in scores)
                for s, j in zip(scores, seen, strict=True):
                    weights[b, h, i, j] = math.exp(s) / total
                    for d in range(D):
                        context[b, h, i, d] += math.exp(s) / total * float(v[b, g, j, d])
    return context, weights


class Textbook(nn.Module):
    """Multi-head attention as it is taught, with a mask that is saved; `divide` replaces √head_dim by a mistake."""

    def __init__(self, d_in, d_out, context_length, dropout, num_heads, qkv_bias=False, divide=None):
        super().__init__()
        self.num_heads, self.divide = num_heads, (d_out // num_heads) ** 0.5 if divide is None else divide
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.out_proj = nn.Linear(d_out, d_out)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("mask", torch.ones(context_length, context_length).triu(1))  # 1 = hidden

    def forward(self, x):
        T = x.shape[1]
        q, k, v = (
            W(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for W in (self.W_query, self.W_key, self.W_value)
        )
        scores = (q @ k.mT).masked_fill(self.mask[:T, :T] == 1, -torch.inf)
        weights = self.dropout((scores / self.divide).softmax(dim=-1))
        return self.out_proj((weights @ v).transpose(1, 2).flatten(2))


def layer_by_hand(layer, x, source=None, mask=None, scale=None, alibi=None):
    """What the layer must compute, by its own three projections and the readable formula."""
    source = x if source is None else source
    q = layer.W_query(x).unflatten(-1, (layer.num_heads, -1)).transpose(1, 2)
    k = layer.W_key(source).unflatten(-1, (layer.num_kv_heads, -1)).transpose(1, 2)
    v = layer.W_value(source).unflatten(-1, (layer.num_kv_heads, -1)).transpose(1, 2)
    heads, weights = attend_in_steps(q, k, v, mask=mask, scale=scale, alibi=alibi)
    return layer.out_proj(heads.transpose(1, 2).flatten(2)), weights

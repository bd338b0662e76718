"""Right layers that keep their weights in other ways. RIGHT lists them; every one must pass."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn


def future(T, device=None):
    return torch.ones(T, T, dtype=torch.bool, device=device).triu(1)


class Loop(nn.Module):
    def __init__(self, d_model, n_heads, block_size, dropout=0.1):
        super().__init__()
        self.n_heads, self.d_k, self.block_size = n_heads, d_model // n_heads, block_size
        self.q_linear, self.k_linear = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.v_linear, self.out = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        q, k, v = (t.chunk(self.n_heads, -1) for t in (self.q_linear(x), self.k_linear(x), self.v_linear(x)))
        heads = []
        for h in range(self.n_heads):
            scores = q[h] @ k[h].transpose(1, 2) / math.sqrt(self.d_k)
            weights = scores.masked_fill(future(x.shape[1], x.device), -torch.inf).softmax(-1)
            heads.append(self.drop(weights) @ v[h])
        return self.out(torch.cat(heads, -1))


class Numbers(nn.Module):
    """Every number by itself, in Python loops."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.wq, self.wk = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.wv, self.wo = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)

    def forward(self, x):
        B, T, E = x.shape
        H, D = self.num_heads, E // self.num_heads
        q, k, v = self.wq(x), self.wk(x), self.wv(x)
        out = torch.zeros_like(x)
        for b in range(B):
            for h in range(H):
                s = slice(h * D, (h + 1) * D)
                for i in range(T):
                    scores = torch.stack([(q[b, i, s] * k[b, j, s]).sum() / D**0.5 for j in range(T)])
                    out[b, i, s] = (scores.softmax(0)[:, None] * v[b, :, s]).sum(0)
        return self.wo(out)


class Einsum(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.to_q, self.to_k = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.to_v, self.to_out = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim)

    def forward(self, x):
        q, k, v = (W(x).unflatten(-1, (self.heads, -1)) for W in (self.to_q, self.to_k, self.to_v))
        weights = torch.einsum("bihd,bjhd->bhij", q * q.shape[-1] ** -0.5, k).softmax(-1)
        return self.to_out(torch.einsum("bhij,bjhd->bihd", weights, v).flatten(2))


class Packed(nn.Module):
    """As in minimal GPTs: a configuration, one weight for all three."""

    def __init__(self, config):
        super().__init__()
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)
        self.attn_dropout, self.resid_dropout = nn.Dropout(config.dropout), nn.Dropout(config.dropout)
        self.n_head, self.n_embd = config.n_head, config.n_embd
        self.register_buffer("bias", torch.tril(torch.ones(config.block_size, config.block_size))[None, None])

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = (t.view(B, T, self.n_head, -1).transpose(1, 2) for t in self.c_attn(x).split(self.n_embd, dim=2))
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = F.softmax(att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf")), dim=-1)
        y = (self.attn_dropout(att) @ v).transpose(1, 2).contiguous().view(B, T, C)
        return self.resid_dropout(self.c_proj(y))


class DictionaryConfig(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.heads = cfg["n_heads"]
        self.qkv = nn.Linear(cfg["emb_dim"], 3 * cfg["emb_dim"], bias=cfg["qkv_bias"])
        self.proj = nn.Linear(cfg["emb_dim"], cfg["emb_dim"])
        self.p = cfg["drop_rate"]
        self.register_buffer("mask", future(cfg["context_length"]))

    def forward(self, x):
        B, T, _ = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        weights = (q @ k.mT / k.shape[-1] ** 0.5).masked_fill(self.mask[:T, :T], -torch.inf).softmax(-1)
        y = F.dropout(weights, self.p, self.training) @ v
        return self.proj(y.transpose(1, 2).reshape(B, T, -1))


class PackedByHead(nn.Module):
    """The rows of the weight are head by head: q, k, v of head 0, then of head 1."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv_proj, self.o_proj = nn.Linear(embed_dim, 3 * embed_dim), nn.Linear(embed_dim, embed_dim)

    def forward(self, x, mask=None):
        B, T, E = x.shape
        q, k, v = self.qkv_proj(x).reshape(B, T, self.num_heads, -1).permute(0, 2, 1, 3).chunk(3, dim=-1)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        scores = scores if mask is None else scores.masked_fill(mask == 0, -9e15)
        return self.o_proj((scores.softmax(-1) @ v).permute(0, 2, 1, 3).reshape(B, T, E))


class KeysBeforeQueries(nn.Module):
    """The packed weight has no order in its name."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.in_proj, self.out_proj = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def forward(self, x):
        k, q, v = (t.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for t in self.in_proj(x).chunk(3, -1))
        return self.out_proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class QueriesAndKeyValues(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.to_q, self.to_kv = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim)
        self.to_out = nn.Sequential(nn.Linear(dim, dim), nn.Dropout(0.0))

    def forward(self, x):
        q, k, v = (
            t.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for t in (self.to_q(x), *self.to_kv(x).chunk(2, -1))
        )
        return self.to_out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class BareParameters(nn.Module):
    def __init__(self, d_in, d_out, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.W_q, self.W_k, self.W_v = (nn.Parameter(torch.rand(d_in, d_out)) for _ in range(3))
        self.W_o = nn.Parameter(torch.rand(d_out, d_out))

    def forward(self, x):
        q, k, v = ((x @ W).unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for W in (self.W_q, self.W_k, self.W_v))
        return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1).matmul(v).transpose(1, 2).flatten(2) @ self.W_o


class StackedHeads(nn.Module):
    """One weight of three axes for all heads, (heads, in, out)."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        D = d_model // num_heads
        self.W_q, self.W_k, self.W_v = (nn.Parameter(torch.rand(num_heads, d_model, D)) for _ in range(3))
        self.out = nn.Linear(d_model, d_model)
        self.num_heads = num_heads

    def forward(self, x):
        q, k, v = (torch.einsum("bti,hid->bhtd", x, W) for W in (self.W_q, self.W_k, self.W_v))
        y = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v
        return self.out(y.transpose(1, 2).flatten(2))


class SumOverHeads(nn.Module):
    """Every head has its own output weight, and the results are added: the same as joining and projecting."""

    def __init__(self, d_model, n_heads):
        super().__init__()
        D = d_model // n_heads
        self.n_heads = n_heads
        self.W_Q, self.W_K, self.W_V = (nn.Parameter(torch.rand(n_heads, d_model, D)) for _ in range(3))
        self.W_O = nn.Parameter(torch.rand(n_heads, D, d_model))

    def forward(self, x):
        q, k, v = (torch.einsum("bti,hid->bhtd", x, W) for W in (self.W_Q, self.W_K, self.W_V))
        y = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v
        return torch.einsum("bhtd,hde->bte", y, self.W_O)


class OneHead(nn.Module):
    def __init__(self, d_in, head_size, context_length, dropout):
        super().__init__()
        self.key = nn.Linear(d_in, head_size, bias=False)
        self.query = nn.Linear(d_in, head_size, bias=False)
        self.value = nn.Linear(d_in, head_size, bias=False)
        self.register_buffer("tril", torch.tril(torch.ones(context_length, context_length)))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        T = x.shape[1]
        k, q = self.key(x), self.query(x)
        wei = q @ k.transpose(-2, -1) * k.shape[-1] ** -0.5
        wei = wei.masked_fill(self.tril[:T, :T] == 0, float("-inf"))
        wei = self.dropout(F.softmax(wei, dim=-1))
        return wei @ self.value(x)


class ListOfHeads(nn.Module):
    def __init__(self, d_model, num_heads, head_size, context_length, dropout=0.0):
        super().__init__()
        self.heads = nn.ModuleList([OneHead(d_model, head_size, context_length, dropout) for _ in range(num_heads)])
        self.proj = nn.Linear(head_size * num_heads, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return self.dropout(self.proj(torch.cat([head(x) for head in self.heads], dim=-1)))


class ListsOfLinears(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        D = d_model // num_heads
        self.q, self.k, self.v = (nn.ModuleList([nn.Linear(d_model, D) for _ in range(num_heads)]) for _ in range(3))
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x):
        heads = [
            F.scaled_dot_product_attention(q(x), k(x), v(x)) for q, k, v in zip(self.q, self.k, self.v, strict=True)
        ]
        return self.out(torch.cat(heads, -1))


RIGHT = [
    *(Loop, Numbers, Einsum, Packed, DictionaryConfig, PackedByHead, KeysBeforeQueries, QueriesAndKeyValues),
    *(BareParameters, StackedHeads, SumOverHeads, OneHead, ListOfHeads, ListsOfLinears),
]

"""Right layers with other inputs, masks and groups. RIGHT lists them; every one must pass."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn


def future(T, device=None):
    return torch.ones(T, T, dtype=torch.bool, device=device).triu(1)


class FourLinears(nn.Module):
    """Projections in a list: names do not say which is which."""

    def __init__(self, h, d_model, dropout=0.1):
        super().__init__()
        self.h, self.d_k = h, d_model // h
        self.linears = nn.ModuleList([nn.Linear(d_model, d_model) for _ in range(4)])
        self.dropout = nn.Dropout(p=dropout)

    def forward(self, query, key, value, mask=None):
        B = query.size(0)
        query, key, value = (
            linear(x).view(B, -1, self.h, self.d_k).transpose(1, 2)
            for linear, x in zip(self.linears, (query, key, value), strict=False)
        )
        scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(self.d_k)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        x = torch.matmul(self.dropout(scores.softmax(dim=-1)), value)
        return self.linears[-1](x.transpose(1, 2).contiguous().view(B, -1, self.h * self.d_k))


class TokensFirst(nn.Module):
    """x is (T, B, E)."""

    def __init__(self, d_model, nhead):
        super().__init__()
        self.nhead = nhead
        self.q_proj, self.k_proj = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.v_proj, self.out_proj = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)

    def forward(self, x):
        T, B, E = x.shape
        q, k, v = (W(x).view(T, B * self.nhead, -1).transpose(0, 1) for W in (self.q_proj, self.k_proj, self.v_proj))
        y = torch.bmm(torch.softmax(torch.bmm(q, k.mT) / q.shape[-1] ** 0.5, -1), v)
        return self.out_proj(y.transpose(0, 1).reshape(T, B, E))


class OneText(nn.Module):
    """x is (T, E), without a batch."""

    def __init__(self, d_in, d_out):
        super().__init__()
        self.W_query, self.W_key, self.W_value = (nn.Parameter(torch.rand(d_in, d_out)) for _ in range(3))

    def forward(self, x):
        assert x.dim() == 2
        keys, queries, values = x @ self.W_key, x @ self.W_query, x @ self.W_value
        return torch.softmax(queries @ keys.T / keys.shape[-1] ** 0.5, dim=-1) @ values


class TorchInside(nn.Module):
    def __init__(self, embed_dim, num_heads, max_len, dropout=0.0):
        super().__init__()
        self.mha = nn.MultiheadAttention(embed_dim, num_heads, dropout=dropout, batch_first=True)
        self.register_buffer("mask", future(max_len))

    def forward(self, x):
        T = x.shape[1]
        return self.mha(x, x, x, attn_mask=self.mask[:T, :T], need_weights=False)[0]


class HiddenMask(nn.Module):
    """forward(x, mask), True = hidden, as in torch."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.values, self.keys, self.queries = (nn.Linear(d_model, d_model) for _ in range(3))
        self.fc_out = nn.Linear(d_model, d_model)

    def forward(self, x, mask):
        q, k, v = (
            W(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for W in (self.queries, self.keys, self.values)
        )
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores.masked_fill(mask, -torch.inf)
        return self.fc_out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class AddedMaskArgument(HiddenMask):
    def forward(self, x, attention_mask=None):
        q, k, v = (
            W(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for W in (self.queries, self.keys, self.values)
        )
        scores = q @ k.mT / q.shape[-1] ** 0.5
        scores = scores if attention_mask is None else scores + attention_mask
        return self.fc_out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class Grouped(nn.Module):
    def __init__(self, d_in, d_out, num_heads, num_kv_groups, dtype=None):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, d_out // num_heads
        self.group_size = num_heads // num_kv_groups
        self.W_query = nn.Linear(d_in, d_out, bias=False, dtype=dtype)
        self.W_key = nn.Linear(d_in, num_kv_groups * self.head_dim, bias=False, dtype=dtype)
        self.W_value = nn.Linear(d_in, num_kv_groups * self.head_dim, bias=False, dtype=dtype)
        self.out_proj = nn.Linear(d_out, d_out, bias=False, dtype=dtype)

    def forward(self, x):
        q, k, v = (
            W(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for W in (self.W_query, self.W_key, self.W_value)
        )
        k, v = (t.repeat_interleave(self.group_size, dim=1) for t in (k, v))
        scores = (q @ k.mT).masked_fill(future(x.shape[1], x.device), -torch.inf)
        weights = torch.softmax(scores / self.head_dim**0.5, dim=-1)
        return self.out_proj((weights @ v).transpose(1, 2).flatten(2))


class GroupedByAxes(Grouped):
    """Query heads as (groups, heads of a group)."""

    def forward(self, x):
        B, T, _ = x.shape
        q = self.W_query(x).view(B, T, -1, self.group_size, self.head_dim)
        k, v = (W(x).view(B, T, -1, self.head_dim) for W in (self.W_key, self.W_value))
        scores = torch.einsum("btgrd,bsgd->bgrts", q, k) / self.head_dim**0.5
        weights = scores.masked_fill(future(T, x.device), -torch.inf).softmax(-1)
        return self.out_proj(torch.einsum("bgrts,bsgd->btgrd", weights, v).flatten(2))


@dataclass
class Settings:
    hidden_size: int = 12
    num_attention_heads: int = 3


class FixedSizes(nn.Module):
    """Built without arguments."""

    def __init__(self, config=None):
        super().__init__()
        config = Settings()
        self.num_attention_heads, self.size = config.num_attention_heads, config.hidden_size
        self.query, self.key, self.value = (nn.Linear(self.size, self.size) for _ in range(3))
        self.dense = nn.Linear(self.size, self.size)

    def forward(self, hidden_states):
        q, k, v = (
            W(hidden_states).unflatten(-1, (self.num_attention_heads, -1)).transpose(1, 2)
            for W in (self.query, self.key, self.value)
        )
        return self.dense((q @ k.mT / q.shape[-1] ** 0.5).softmax(-1).matmul(v).transpose(1, 2).flatten(2))


class FrozenMaskParameter(nn.Module):
    def __init__(self, d_model, num_heads, context_length):
        super().__init__()
        self.num_heads = num_heads
        self.q_layer, self.k_layer = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.v_layer, self.o_proj = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.mask = nn.Parameter(torch.ones(context_length, context_length).tril(), requires_grad=False)

    def forward(self, x):
        T = x.shape[1]
        q, k, v = (
            W(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for W in (self.q_layer, self.k_layer, self.v_layer)
        )
        scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(self.mask[:T, :T] == 0, -torch.inf)
        return self.o_proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class MaskMadeInForward(nn.Module):
    def __init__(self, d_model, num_heads, max_seq_len, dropout=0.0):
        super().__init__()
        self.num_heads = num_heads
        self.dropout = nn.Dropout(dropout)
        self.q_proj, self.k_proj = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.v_proj, self.o_proj = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)

    def forward(self, x):
        T = x.size(1)
        q, k, v = (
            W(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for W in (self.q_proj, self.k_proj, self.v_proj)
        )
        mask = torch.tril(torch.ones(T, T)).to(x.device)
        scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(mask == 0, -torch.inf)
        return self.o_proj((self.dropout(scores.softmax(-1)) @ v).transpose(1, 2).flatten(2))


RIGHT = [
    *(FourLinears, TokensFirst, OneText, TorchInside, HiddenMask, AddedMaskArgument, Grouped, GroupedByAxes),
    *(FixedSizes, FrozenMaskParameter, MaskMadeInForward),
]

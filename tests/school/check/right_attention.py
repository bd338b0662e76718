"""The textbook's layer, right, with its attention written in many ways. RIGHT lists them; every one must pass."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn


def future(T, device=None):
    return torch.ones(T, T, dtype=torch.bool, device=device).triu(1)


class Plain(nn.Module):
    """As in the textbook."""

    def __init__(self, d_in, d_out, context_length, dropout, num_heads, qkv_bias=False):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, d_out // num_heads
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.out_proj = nn.Linear(d_out, d_out)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("mask", torch.triu(torch.ones(context_length, context_length), diagonal=1))

    def split(self, t):
        return t.view(*t.shape[:2], self.num_heads, self.head_dim).transpose(1, 2)

    def attend(self, q, k, v):
        T = q.shape[2]
        scores = (q @ k.mT).masked_fill(self.mask.bool()[:T, :T], -torch.inf)
        return self.dropout((scores / self.head_dim**0.5).softmax(-1)) @ v

    def forward(self, x):
        q, k, v = (self.split(W(x)) for W in (self.W_query, self.W_key, self.W_value))
        return self.out_proj(self.attend(q, k, v).transpose(1, 2).flatten(2))


class RenormalisedMask(Plain):
    """Hidden weights are set to 0 after the softmax, and rows divided by their sums."""

    def attend(self, q, k, v):
        T = q.shape[2]
        weights = (q @ k.mT / self.head_dim**0.5).softmax(-1) * (1 - self.mask[:T, :T])
        return self.dropout(weights / weights.sum(-1, keepdim=True)) @ v


class ScaledQueries(Plain):
    def attend(self, q, k, v):
        T = q.shape[2]
        scores = (q * self.head_dim**-0.25) @ (k * self.head_dim**-0.25).mT
        return self.dropout(scores.masked_fill(self.mask.bool()[:T, :T], -torch.inf).softmax(-1)) @ v


class LargeNegative(Plain):
    def attend(self, q, k, v):
        T = q.shape[2]
        scores = (q @ k.mT / math.sqrt(self.head_dim)).masked_fill(self.mask[:T, :T] == 1, -1e9)
        return self.dropout(F.softmax(scores, dim=3)) @ v


class AddedMask(Plain):
    def attend(self, q, k, v):
        T = q.shape[2]
        hidden = torch.zeros(T, T, dtype=q.dtype, device=q.device).masked_fill(self.mask[:T, :T] == 1, float("-inf"))
        return self.dropout(torch.softmax(q @ k.mT / self.head_dim**0.5 + hidden, dim=-1)) @ v


class SoftmaxByHand(Plain):
    def attend(self, q, k, v):
        T = q.shape[2]
        scores = (q @ k.mT / self.head_dim**0.5).masked_fill(self.mask.bool()[:T, :T], -torch.inf)
        powers = (scores - scores.amax(-1, keepdim=True)).exp()
        return self.dropout(powers / powers.sum(-1, keepdim=True)) @ v


class KeysFirst(Plain):
    """Scores are (keys, queries), and the softmax runs over dim -2."""

    def attend(self, q, k, v):
        T = q.shape[2]
        scores = (k @ q.mT / self.head_dim**0.5).masked_fill(self.mask.bool()[:T, :T].mT, -torch.inf)
        return self.dropout(scores.softmax(-2)).mT @ v


class Float32Scale(Plain):
    def attend(self, q, k, v):
        T = q.shape[2]
        scores = q @ k.mT / torch.sqrt(torch.tensor(self.head_dim, dtype=torch.float32))
        return self.dropout(scores.masked_fill(self.mask.bool()[:T, :T], -torch.inf).softmax(-1)) @ v


class AssignedMask(Plain):
    def attend(self, q, k, v):
        T = q.shape[2]
        scores = q @ k.mT / self.head_dim**0.5
        scores[..., self.mask.bool()[:T, :T]] = -torch.inf
        return self.dropout(scores.softmax(-1)) @ v


class RowByRow(Plain):
    """One query at a time, over its past only: nothing is ever hidden."""

    def attend(self, q, k, v):
        rows = []
        for t in range(q.shape[2]):
            scores = q[:, :, t : t + 1] @ k[:, :, : t + 1].mT / self.head_dim**0.5
            rows.append(self.dropout(scores.softmax(-1)) @ v[:, :, : t + 1])
        return torch.cat(rows, dim=2)


class Fused(Plain):
    def attend(self, q, k, v):
        p = self.dropout.p if self.training else 0.0
        return F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)


class FusedWithMask(Plain):
    def attend(self, q, k, v):
        T, p = q.shape[2], self.dropout.p if self.training else 0.0
        return F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask[:T, :T] == 0, dropout_p=p)


class CentredKeys(Plain):
    """The mean of the keys is taken away: that adds the same number to all scores of a row, and the softmax stays."""

    def attend(self, q, k, v):
        return super().attend(q, k - k.mean(2, keepdim=True), v)


class ReturnsWeights(Plain):
    def forward(self, x):
        q, k, v = (self.split(W(x)) for W in (self.W_query, self.W_key, self.W_value))
        T = x.shape[1]
        weights = (q @ k.mT / self.head_dim**0.5).masked_fill(self.mask.bool()[:T, :T], -torch.inf).softmax(-1)
        return self.out_proj((self.dropout(weights) @ v).transpose(1, 2).flatten(2)), weights


class ReturnsDictionary(Plain):
    def forward(self, x):
        return {"weights": None, "out": super().forward(x)}


class AlternatingHeads(Plain):
    """Head h has every H-th number of a vector; split and merge agree."""

    def split(self, t):
        return t.view(*t.shape[:2], self.head_dim, self.num_heads).permute(0, 3, 1, 2)

    def forward(self, x):
        q, k, v = (self.split(W(x)) for W in (self.W_query, self.W_key, self.W_value))
        return self.out_proj(self.attend(q, k, v).permute(0, 2, 3, 1).flatten(2))


class Bidirectional(Plain):
    """Takes a context length and hides nothing; its name says so."""

    def attend(self, q, k, v):
        return self.dropout((q @ k.mT / self.head_dim**0.5).softmax(-1)) @ v


RIGHT = [
    *(Plain, RenormalisedMask, ScaledQueries, LargeNegative, AddedMask, SoftmaxByHand, KeysFirst, Float32Scale),
    *(AssignedMask, RowByRow, Fused, FusedWithMask, ReturnsWeights, ReturnsDictionary, AlternatingHeads, Bidirectional),
    CentredKeys,
]

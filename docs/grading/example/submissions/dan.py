import torch
from torch import nn


class CausalAttention(nn.Module):
    def __init__(self, d_in, d_out, context_length, dropout, qkv_bias=False):
        super().__init__()
        self.W_query = nn.Linear(d_in, d_out, qkv_bias)
        self.W_key = nn.Linear(d_in, d_out, qkv_bias)
        self.W_value = nn.Linear(d_in, d_out, qkv_bias)
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        scores = self.W_query(x).bmm(self.W_key(x).mT).div(self.W_key.out_features**0.5)
        seen = torch.ones_like(scores).tril() > 0
        return self.drop(torch.where(seen, scores, float("-inf")).softmax(2)).bmm(self.W_value(x))


class MultiHeadAttention(nn.Module):
    def __init__(self, d_in, d_out, context_length, dropout, num_heads, qkv_bias=False):
        super().__init__()
        self.heads = num_heads
        self.W_query = nn.Linear(d_in, d_out, qkv_bias)
        self.W_key = nn.Linear(d_in, d_out, qkv_bias)
        self.W_value = nn.Linear(d_in, d_out, qkv_bias)
        self.out_proj = nn.Linear(d_out, d_out)
        self.drop = nn.Dropout(dropout)

    def split(self, t):
        return t.reshape(t.shape[0], t.shape[1], self.heads, -1).transpose(1, 2)

    def forward(self, x):
        q, k, v = self.split(self.W_query(x)), self.split(self.W_key(x)), self.split(self.W_value(x))
        scores = q.matmul(k.mT).div(q.shape[-1] ** 0.5)
        seen = torch.ones_like(scores).tril() > 0
        mixed = self.drop(torch.where(seen, scores, float("-inf")).softmax(3)).matmul(v)
        return self.out_proj(mixed.transpose(1, 2).view(x.shape[0], x.shape[1], -1))

"""A homework with one mistake: the scale. `regard check examples/homework.py` finds it."""

import math

import torch
from torch import nn


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.d_model = d_model
        self.num_heads = num_heads
        self.head_dim = d_model // num_heads
        self.W_q = nn.Linear(d_model, d_model)
        self.W_k = nn.Linear(d_model, d_model)
        self.W_v = nn.Linear(d_model, d_model)
        self.W_o = nn.Linear(d_model, d_model)

    def split_heads(self, x):
        batch_size, num_tokens, _ = x.shape
        return x.view(batch_size, num_tokens, self.num_heads, self.head_dim).transpose(1, 2)

    def forward(self, x):
        q, k, v = self.split_heads(self.W_q(x)), self.split_heads(self.W_k(x)), self.split_heads(self.W_v(x))
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.d_model)
        weights = torch.softmax(scores, dim=-1)
        context = (weights @ v).transpose(1, 2).contiguous().view(x.shape)
        return self.W_o(context), weights

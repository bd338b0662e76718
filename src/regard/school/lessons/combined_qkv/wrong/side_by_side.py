# named: side by side
import torch
from torch import nn


def combine(W_query, W_key, W_value):  # (d_model, d_model) each
    return torch.cat([W_query, W_key, W_value], dim=1)  # (3 * d_model, d_model)


def take_apart(qkv):  # (B, T, 3 * d_model)
    q, k, v = qkv.chunk(3, dim=-1)
    return q, k, v  # (B, T, d_model) each


class FastMultiHeadAttention(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, d_model // num_heads
        self.qkv_proj = nn.Linear(d_model, 3 * d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, x):
        B, T, E = x.shape
        q, k, v = take_apart(self.qkv_proj(x))
        heads = (B, T, self.num_heads, self.head_dim)
        q, k, v = (t.reshape(heads).transpose(1, 2) for t in (q, k, v))
        weights = torch.softmax(q @ k.mT / self.head_dim**0.5, dim=-1)
        return self.out_proj((weights @ v).transpose(1, 2).reshape(B, T, E))

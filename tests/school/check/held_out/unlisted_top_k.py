import math
import torch
import torch.nn as nn


class SparseSelfAttention(nn.Module):
    """keep only the two best keys of each query"""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.d_k = d_model // num_heads
        self.q_linear = nn.Linear(d_model, d_model)
        self.k_linear = nn.Linear(d_model, d_model)
        self.v_linear = nn.Linear(d_model, d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (w(x).view(B, T, self.num_heads, -1).transpose(1, 2) for w in (self.q_linear, self.k_linear, self.v_linear))
        s = q @ k.mT / math.sqrt(self.d_k)
        best = s.topk(2, dim=-1).values[..., -1:]
        s = s.masked_fill(s < best, float("-inf"))
        return self.out_proj((s.softmax(-1) @ v).transpose(1, 2).reshape(B, T, C))

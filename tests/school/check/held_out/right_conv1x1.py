import torch
import torch.nn as nn
import torch.nn.functional as F


class ConvAttention(nn.Module):
    """projections as 1x1 convolutions; x: (batch, tokens, width)"""

    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.query = nn.Conv1d(dim, dim, 1)
        self.key = nn.Conv1d(dim, dim, 1)
        self.value = nn.Conv1d(dim, dim, 1)
        self.proj = nn.Conv1d(dim, dim, 1)

    def forward(self, x):
        B, T, E = x.shape
        x = x.transpose(1, 2)
        q, k, v = (c(x).view(B, self.num_heads, E // self.num_heads, T).mT for c in (self.query, self.key, self.value))
        y = F.scaled_dot_product_attention(q, k, v)
        return self.proj(y.mT.reshape(B, E, T)).mT

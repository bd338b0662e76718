import torch
import torch.nn as nn
import torch.nn.functional as F


class MultiHeadAttention(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q = nn.Linear(embed_dim, embed_dim)
        self.k = nn.Linear(embed_dim, embed_dim)
        self.v = nn.Linear(embed_dim, embed_dim)
        self.o = nn.Linear(embed_dim, embed_dim)

    def forward(self, x):
        # x: (batch, tokens, width)
        B, T, E = x.shape
        q = self.q(x).view(B, T, self.num_heads, -1).permute(1, 2, 0, 3)
        k = self.k(x).view(B, T, self.num_heads, -1).permute(1, 2, 0, 3)
        v = self.v(x).view(B, T, self.num_heads, -1).permute(1, 2, 0, 3)
        y = F.scaled_dot_product_attention(q, k, v)
        y = y.permute(2, 0, 1, 3).reshape(B, T, E)
        return self.o(y)

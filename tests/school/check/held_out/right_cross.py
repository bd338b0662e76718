import torch
import torch.nn as nn
import torch.nn.functional as F


class CrossAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.to_q = nn.Linear(dim, dim, bias=False)
        self.to_k = nn.Linear(dim, dim, bias=False)
        self.to_v = nn.Linear(dim, dim, bias=False)
        self.to_out = nn.Linear(dim, dim)

    def forward(self, x, context=None):
        context = x if context is None else context
        h = self.heads
        q = self.to_q(x).unflatten(-1, (h, -1)).transpose(1, 2)
        k = self.to_k(context).unflatten(-1, (h, -1)).transpose(1, 2)
        v = self.to_v(context).unflatten(-1, (h, -1)).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.to_out(y.transpose(1, 2).flatten(2))

import torch
import torch.nn as nn
import torch.nn.functional as F


class FastMultiHeadAttention(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv_proj = nn.Linear(d_model, 3 * d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        B, T, E = x.shape
        q, k, v = (t.view(B, T, self.num_heads, -1).transpose(1, 2) for t in self.qkv_proj(x).chunk(3, -1))
        s = q @ k.transpose(-1, -2) / q.size(-1) ** 0.5
        if mask is not None:
            s = s.masked_fill(mask.logical_not_(), float("-inf"))
        y = F.softmax(s, dim=-1) @ v
        return self.out_proj(y.transpose(1, 2).reshape(B, T, E))

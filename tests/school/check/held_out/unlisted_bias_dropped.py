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
        qkv = x @ self.qkv_proj.weight.T
        q, k, v = (t.view(B, T, self.num_heads, -1).transpose(1, 2) for t in qkv.chunk(3, -1))
        m = None if mask is None else mask != 0
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=m)
        return self.out_proj(y.transpose(1, 2).reshape(B, T, E))

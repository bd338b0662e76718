import torch
import torch.nn as nn
import torch.nn.functional as F


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv_proj = nn.Linear(d_model, 3 * d_model)

    def forward(self, x, mask=None):
        B, T, E = x.shape
        q, k, v = self.qkv_proj(x).chunk(3, -1)
        heads = lambda t: t.view(B, T, self.num_heads, -1).transpose(1, 2)
        if mask is not None:
            mask = mask.bool()
        out = F.scaled_dot_product_attention(heads(q), heads(k), heads(v), attn_mask=mask)
        return out.transpose(1, 2).reshape(B, T, E)

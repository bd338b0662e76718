import torch
import torch.nn as nn


class CausalSelfAttention(nn.Module):
    def __init__(self, d_model, num_heads, dropout=0.0):
        super().__init__()
        self.attn = nn.MultiheadAttention(d_model, num_heads, dropout=dropout, batch_first=True)

    def forward(self, x):
        t = x.shape[1]
        hide = torch.ones(t, t, dtype=torch.bool, device=x.device).triu(1)
        y, _ = self.attn(x, x, x, attn_mask=hide, need_weights=False)
        return y

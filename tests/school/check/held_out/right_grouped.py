import torch
import torch.nn as nn
import torch.nn.functional as F


class GroupedQueryAttention(nn.Module):
    def __init__(self, d_model, num_heads, num_kv_heads):
        super().__init__()
        self.num_heads, self.num_kv_heads = num_heads, num_kv_heads
        self.head_dim = d_model // num_heads
        self.W_query = nn.Linear(d_model, d_model, bias=False)
        self.W_key = nn.Linear(d_model, num_kv_heads * self.head_dim, bias=False)
        self.W_value = nn.Linear(d_model, num_kv_heads * self.head_dim, bias=False)
        self.out_proj = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x):
        b, t, e = x.shape
        g = self.num_heads // self.num_kv_heads
        q = self.W_query(x).view(b, t, self.num_kv_heads, g, self.head_dim)
        k = self.W_key(x).view(b, t, self.num_kv_heads, self.head_dim)
        v = self.W_value(x).view(b, t, self.num_kv_heads, self.head_dim)
        s = torch.einsum("btngd,bsnd->bngts", q, k) * self.head_dim**-0.5
        hide = torch.ones(t, t, dtype=torch.bool, device=x.device).triu(1)
        w = F.softmax(s.masked_fill(hide, float("-inf")), dim=-1)
        return self.out_proj(torch.einsum("bngts,bsnd->btngd", w, v).reshape(b, t, e))

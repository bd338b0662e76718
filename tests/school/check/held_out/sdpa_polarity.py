import torch
import torch.nn as nn
import torch.nn.functional as F


class CausalAttn(nn.Module):
    def __init__(self, emb: int, heads: int):
        super().__init__()
        self.heads = heads
        self.Wq = nn.Linear(emb, emb, bias=False)
        self.Wk = nn.Linear(emb, emb, bias=False)
        self.Wv = nn.Linear(emb, emb, bias=False)
        self.Wo = nn.Linear(emb, emb)

    def forward(self, x):
        B, T, E = x.shape
        split = lambda t: t.view(B, T, self.heads, E // self.heads).transpose(1, 2)
        hide = torch.triu(torch.ones(T, T, dtype=torch.bool, device=x.device), diagonal=1)
        y = F.scaled_dot_product_attention(split(self.Wq(x)), split(self.Wk(x)), split(self.Wv(x)), attn_mask=hide)
        return self.Wo(y.transpose(1, 2).reshape(B, T, E))

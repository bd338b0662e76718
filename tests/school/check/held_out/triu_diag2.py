import torch
import torch.nn as nn

GPT_CONFIG = {
    "emb_dim": 24,
    "n_heads": 4,
    "context_length": 16,
    "drop_rate": 0.0,
    "qkv_bias": False,
}


class MultiHeadAttention(nn.Module):
    def __init__(self, cfg=GPT_CONFIG):
        super().__init__()
        d = cfg["emb_dim"]
        self.num_heads = cfg["n_heads"]
        self.head_dim = d // cfg["n_heads"]
        self.W_query = nn.Linear(d, d, bias=cfg["qkv_bias"])
        self.W_key = nn.Linear(d, d, bias=cfg["qkv_bias"])
        self.W_value = nn.Linear(d, d, bias=cfg["qkv_bias"])
        self.out_proj = nn.Linear(d, d)
        self.dropout = nn.Dropout(cfg["drop_rate"])
        n = cfg["context_length"]
        self.register_buffer("mask", torch.triu(torch.ones(n, n), diagonal=2))

    def forward(self, x):
        b, t, d = x.shape
        k = self.W_key(x).view(b, t, self.num_heads, self.head_dim).transpose(1, 2)
        q = self.W_query(x).view(b, t, self.num_heads, self.head_dim).transpose(1, 2)
        v = self.W_value(x).view(b, t, self.num_heads, self.head_dim).transpose(1, 2)
        s = (q @ k.transpose(2, 3)).masked_fill(self.mask.bool()[:t, :t], -torch.inf)
        w = self.dropout(torch.softmax(s / k.shape[-1] ** 0.5, dim=-1))
        return self.out_proj((w @ v).transpose(1, 2).reshape(b, t, d))

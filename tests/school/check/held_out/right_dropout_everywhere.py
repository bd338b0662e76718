import torch
import torch.nn as nn
import torch.nn.functional as F

GPT_CONFIG_124M = {"vocab_size": 50257, "context_length": 64, "emb_dim": 48, "n_heads": 4, "drop_rate": 0.1, "qkv_bias": False}


class MultiHeadAttention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.h = cfg["n_heads"]
        self.p = cfg["drop_rate"]
        self.qkv = nn.Linear(cfg["emb_dim"], 3 * cfg["emb_dim"], bias=cfg["qkv_bias"])
        self.proj = nn.Linear(cfg["emb_dim"], cfg["emb_dim"])
        self.resid = nn.Dropout(cfg["drop_rate"])

    def forward(self, x):
        b, t, e = x.shape
        q, k, v = (z.view(b, t, self.h, e // self.h).transpose(1, 2) for z in self.qkv(x).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.p if self.training else 0.0, is_causal=True)
        return self.resid(self.proj(y.transpose(1, 2).contiguous().view(b, t, e)))

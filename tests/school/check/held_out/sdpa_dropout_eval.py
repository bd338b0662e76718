import torch
import torch.nn as nn
import torch.nn.functional as F


class FlashAttention(nn.Module):
    def __init__(self, dim, heads, attn_pdrop=0.2):
        super().__init__()
        self.heads = heads
        self.attn_pdrop = attn_pdrop
        self.q = nn.Linear(dim, dim)
        self.kv = nn.Linear(dim, 2 * dim)
        self.o = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, c = x.shape
        q = self.q(x).reshape(b, n, self.heads, -1).transpose(1, 2)
        k, v = self.kv(x).reshape(b, n, 2, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.attn_pdrop)
        return self.o(y.transpose(1, 2).reshape(b, n, c))

import torch
import torch.nn as nn
import torch.nn.functional as F


class SelfAttn(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(width, width)
        self.k = nn.Linear(width, width)
        self.v = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        b, t, w = x.shape
        f = lambda m, y: m(y).view(b, t, self.heads, w // self.heads).transpose(1, 2)
        v = f(self.v, x.flip(1))
        y = F.scaled_dot_product_attention(f(self.q, x), f(self.k, x), v)
        return self.out(y.transpose(1, 2).reshape(b, t, w))

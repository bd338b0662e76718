import torch
import torch.nn as nn


class CausalAttention(nn.Module):
    def __init__(self, d_in, d_out, context_length, dropout, num_heads=2):
        super().__init__()
        self.h = num_heads
        self.hd = d_out // num_heads
        self.q = nn.Linear(d_in, d_out)
        self.k = nn.Linear(d_in, d_out)
        self.v = nn.Linear(d_in, d_out)
        self.o = nn.Linear(d_out, d_out)
        self.drop = nn.Dropout(dropout)
        self.register_buffer("mask", torch.triu(torch.ones(context_length, context_length), 1).bool())

    def forward(self, x):
        b, t, _ = x.shape
        q = self.q(x).view(b, t, self.h, self.hd).transpose(1, 2)
        k = self.k(x).view(b, t, self.h, self.hd).transpose(1, 2)
        v = self.v(x).view(b, t, self.h, self.hd).transpose(1, 2)
        s = q @ k.transpose(2, 3) / self.hd ** 0.5
        s = s.masked_fill(self.mask[:t, :t], torch.inf)
        w = self.drop(s.softmax(-1))
        c = (w @ v).transpose(1, 2).reshape(b, t, self.h * self.hd)
        return self.o(c)

import math
import torch
import torch.nn as nn
import torch.nn.functional as F


class TemperatureAttention(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q = nn.Linear(dim, dim)
        self.k = nn.Linear(dim, dim)
        self.v = nn.Linear(dim, dim)
        self.o = nn.Linear(dim, dim)

    def forward(self, x):
        B, T, E = x.shape
        q = self.q(x).view(B, T, self.num_heads, -1).transpose(1, 2)
        k = self.k(x).view(B, T, self.num_heads, -1).transpose(1, 2)
        v = self.v(x).view(B, T, self.num_heads, -1).transpose(1, 2)
        s = q @ k.transpose(-1, -2) / (3 * math.sqrt(k.size(-1)))
        return self.o((F.softmax(s, dim=-1) @ v).transpose(1, 2).reshape(B, T, E))

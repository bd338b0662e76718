import torch
import torch.nn as nn


class ResidualAttention(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.W_q = nn.Linear(d_model, d_model)
        self.W_k = nn.Linear(d_model, d_model)
        self.W_v = nn.Linear(d_model, d_model)
        self.W_o = nn.Linear(d_model, d_model)

    def forward(self, x):
        B, T, E = x.shape
        q, k, v = (w(x).view(B, T, self.num_heads, -1).transpose(1, 2) for w in (self.W_q, self.W_k, self.W_v))
        w = torch.softmax(q @ k.mT / (E // self.num_heads) ** 0.5, dim=-1)
        return x + self.W_o((w @ v).transpose(1, 2).reshape(B, T, E))

import torch
import torch.nn as nn


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model=768, num_heads=12):
        super().__init__()
        self.d_model = d_model
        self.num_heads = num_heads
        self.W_q = nn.Linear(d_model, d_model)
        self.W_k = nn.Linear(d_model, d_model)
        self.W_v = nn.Linear(d_model, d_model)
        self.W_o = nn.Linear(d_model, d_model)

    def forward(self, x):
        B, T, _ = x.shape
        q = self.W_q(x).view(B, T, self.num_heads, 64).transpose(1, 2)
        k = self.W_k(x).view(B, T, self.num_heads, 64).transpose(1, 2)
        v = self.W_v(x).view(B, T, self.num_heads, 64).transpose(1, 2)
        w = torch.softmax(q @ k.transpose(-2, -1) / 8, dim=-1)
        return self.W_o((w @ v).transpose(1, 2).reshape(B, T, self.d_model))

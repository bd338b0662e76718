import torch
import torch.nn as nn


class MHSA(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q_linear = nn.Linear(d_model, d_model)
        self.k_linear = nn.Linear(d_model, d_model)
        self.v_linear = nn.Linear(d_model, d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, x):
        B, T, C = x.shape
        q = self.q_linear(x).view(B, T, self.num_heads, -1).transpose(1, 2)
        k = self.k_linear(x).view(B, T, self.num_heads, -1).transpose(1, 2)
        v = self.k_linear(x).view(B, T, self.num_heads, -1).transpose(1, 2)
        w = torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1)
        return self.out_proj((w @ v).transpose(1, 2).reshape(B, T, C))

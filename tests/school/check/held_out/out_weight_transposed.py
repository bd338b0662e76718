import torch
import torch.nn as nn


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.nh = num_heads
        self.W_q = nn.Linear(d_model, d_model)
        self.W_k = nn.Linear(d_model, d_model)
        self.W_v = nn.Linear(d_model, d_model)
        self.W_o = nn.Linear(d_model, d_model)

    def forward(self, x):
        B, T, E = x.shape
        q, k, v = [w(x).view(B, T, self.nh, E // self.nh).transpose(1, 2) for w in (self.W_q, self.W_k, self.W_v)]
        a = torch.softmax(q @ k.transpose(2, 3) * (E // self.nh) ** -0.5, dim=-1)
        z = (a @ v).transpose(1, 2).reshape(B, T, E)
        return torch.matmul(z, self.W_o.weight) + self.W_o.bias

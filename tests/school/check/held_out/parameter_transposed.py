import torch
import torch.nn as nn


class SelfAttention(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.d_model = d_model
        self.W_q = nn.Linear(d_model, d_model, bias=False)
        self.W_k = nn.Linear(d_model, d_model, bias=False)
        self.W_v = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x):
        q = x @ self.W_q.weight
        k = x @ self.W_k.weight
        v = x @ self.W_v.weight
        w = torch.softmax(q @ k.transpose(-1, -2) / self.d_model**0.5, dim=-1)
        return w @ v

import torch
import torch.nn as nn


class MultiHeadAttention(nn.Module):
    """every head gets the full width"""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.d_model = d_model
        self.W_q = nn.Linear(d_model, d_model * num_heads)
        self.W_k = nn.Linear(d_model, d_model * num_heads)
        self.W_v = nn.Linear(d_model, d_model * num_heads)
        self.W_o = nn.Linear(d_model * num_heads, d_model)

    def forward(self, x):
        B, T, E = x.shape
        q = self.W_q(x).view(B, T, self.num_heads, E).transpose(1, 2)
        k = self.W_k(x).view(B, T, self.num_heads, E).transpose(1, 2)
        v = self.W_v(x).view(B, T, self.num_heads, E).transpose(1, 2)
        a = torch.softmax(q @ k.mT / E**0.5, dim=-1)
        return self.W_o((a @ v).transpose(1, 2).reshape(B, T, -1))

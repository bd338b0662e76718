import torch
import torch.nn as nn


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.W_q = nn.Linear(d_model, d_model)
        self.W_k = nn.Linear(d_model, d_model)
        self.W_v = nn.Linear(d_model, d_model)
        self.W_o = nn.Linear(d_model, d_model)

    def split_heads(self, x):
        return x.view(x.shape[0], x.shape[1], self.num_heads, -1).transpose(1, 2)

    def forward(self, x, mask=None):
        q, k, v = map(self.split_heads, (self.W_q(x), self.W_k(x), self.W_v(x)))
        attention = torch.softmax(q @ k.transpose(-2, -1), dim=-1)
        output = (attention @ v).reshape(x.shape)
        return self.W_o(output), attention

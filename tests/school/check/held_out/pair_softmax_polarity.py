import torch
from torch import nn


class SelfAttention(nn.Module):
    def __init__(self, d_in, d_out, qkv_bias=False):
        super().__init__()
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)

    def forward(self, x):
        scores = torch.bmm(self.W_query(x), self.W_key(x).permute(0, 2, 1))
        weights = torch.softmax(scores, dim=1)
        return torch.bmm(weights, self.W_value(x))

import torch
import torch.nn as nn


class Head(nn.Module):
    def __init__(self, d_in, d_out, context_length):
        super().__init__()
        self.W_query = nn.Linear(d_in, d_out, bias=False)
        self.W_key = nn.Linear(d_in, d_out, bias=False)
        self.W_value = nn.Linear(d_in, d_out, bias=False)
        self.register_buffer("mask", torch.triu(torch.ones(context_length, context_length), diagonal=1).bool())

    def forward(self, x):
        t = x.shape[1]
        s = self.W_query(x) @ self.W_key(x).transpose(1, 2)
        s = s.masked_fill(self.mask[:t, :t], -torch.inf)
        return torch.softmax(s / self.W_key.out_features ** 0.5, dim=-1) @ self.W_value(x)


class CausalMultiHead(nn.Module):
    def __init__(self, d_in, d_out, context_length, num_heads):
        super().__init__()
        self.heads = nn.ModuleList(Head(d_in, d_out, context_length) for _ in range(num_heads))
        self.out_proj = nn.Linear(d_out, d_out)

    def forward(self, x):
        return self.out_proj(torch.stack([h(x) for h in self.heads]).mean(0))

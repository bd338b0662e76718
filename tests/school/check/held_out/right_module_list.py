import torch
import torch.nn as nn


class CausalHead(nn.Module):
    def __init__(self, d_in, d_head):
        super().__init__()
        self.q = nn.Linear(d_in, d_head, bias=False)
        self.k = nn.Linear(d_in, d_head, bias=False)
        self.v = nn.Linear(d_in, d_head, bias=False)

    def forward(self, x):
        n = x.shape[-2]
        s = self.q(x) @ self.k(x).mT / self.q.out_features**0.5
        s = s + torch.full((n, n), -torch.inf, device=x.device, dtype=x.dtype).triu(1)
        return s.softmax(-1) @ self.v(x)


class ParallelHeads(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.heads = nn.ModuleList(CausalHead(d_model, d_model // num_heads) for _ in range(num_heads))
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, x):
        return self.out_proj(torch.cat([head(x) for head in self.heads], dim=-1))

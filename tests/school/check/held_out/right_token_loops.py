import math
import torch
import torch.nn as nn


class SlowCausalAttention(nn.Module):
    """Every token of every head by itself, no mask needed."""

    def __init__(self, n_embd, n_head):
        super().__init__()
        self.n_head = n_head
        self.d = n_embd // n_head
        self.query = nn.Linear(n_embd, n_embd)
        self.key = nn.Linear(n_embd, n_embd)
        self.value = nn.Linear(n_embd, n_embd)
        self.proj = nn.Linear(n_embd, n_embd)

    def forward(self, x):
        q, k, v = self.query(x), self.key(x), self.value(x)
        rows = []
        for t in range(x.size(1)):
            heads = []
            for h in range(self.n_head):
                s = slice(h * self.d, (h + 1) * self.d)
                scores = (k[:, : t + 1, s] * q[:, t : t + 1, s]).sum(-1) / math.sqrt(self.d)
                w = torch.softmax(scores, dim=1)
                heads.append((w[..., None] * v[:, : t + 1, s]).sum(1))
            rows.append(torch.cat(heads, dim=-1))
        return self.proj(torch.stack(rows, dim=1))

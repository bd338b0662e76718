import math
import torch
import torch.nn as nn


class SlidingWindowAttention(nn.Module):
    def __init__(self, d_model: int, n_heads: int, window: int = 3):
        super().__init__()
        self.n_heads, self.window = n_heads, window
        self.q_proj = nn.Linear(d_model, d_model, bias=False)
        self.k_proj = nn.Linear(d_model, d_model, bias=False)
        self.v_proj = nn.Linear(d_model, d_model, bias=False)
        self.o_proj = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x):
        b, t, e = x.shape
        q, k, v = (p(x).view(b, t, self.n_heads, -1).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        i = torch.arange(t, device=x.device)
        ok = (i[None] <= i[:, None]) & (i[:, None] - i[None] < self.window)
        s = (q @ k.mT) / math.sqrt(q.shape[-1])
        a = s.masked_fill(~ok, float("-inf")).softmax(-1)
        return self.o_proj((a @ v).transpose(1, 2).flatten(2))

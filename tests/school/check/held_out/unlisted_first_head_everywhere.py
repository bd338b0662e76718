import torch
import torch.nn as nn


class LoopedHeads(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads, self.dh = n_heads, d_model // n_heads
        self.wq = nn.Linear(d_model, d_model)
        self.wk = nn.Linear(d_model, d_model)
        self.wv = nn.Linear(d_model, d_model)
        self.wo = nn.Linear(d_model, d_model)

    def forward(self, x):
        q, k, v = self.wq(x), self.wk(x), self.wv(x)
        heads = []
        for i in range(self.n_heads):
            a, b = i * self.dh, (i + 1) * self.dh
            w = torch.softmax(q[:, :, a:b] @ k[:, :, : self.dh].transpose(1, 2) / self.dh**0.5, dim=-1)
            heads.append(w @ v[:, :, a:b])
        return self.wo(torch.cat(heads, dim=-1))

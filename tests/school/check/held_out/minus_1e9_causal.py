import torch
import torch.nn as nn


class GPTAttention(nn.Module):
    """Causal attention as in GPT-2."""

    def __init__(self, nx, n_ctx, n_head):
        super().__init__()
        self.n_head = n_head
        self.register_buffer("b", torch.tril(torch.ones(n_ctx, n_ctx)).view(1, 1, n_ctx, n_ctx))
        self.c_attn = nn.Linear(nx, nx * 3)
        self.c_proj = nn.Linear(nx, nx)

    def forward(self, x):
        B, T, E = x.shape
        q, k, v = (t.view(B, T, self.n_head, -1).transpose(1, 2) for t in self.c_attn(x).chunk(3, dim=2))
        w = q @ k.transpose(-1, -2) / (E // self.n_head) ** 0.5
        w = w.masked_fill(self.b[:, :, :T, :T] == 0, -1e9)
        a = w.softmax(-1) @ v
        return self.c_proj(a.transpose(1, 2).reshape(B, T, E))

import torch
import torch.nn as nn


class CausalMean(nn.Module):
    """Causal attention."""

    def __init__(self, n_embd, n_head):
        super().__init__()
        self.n_head = n_head
        self.qkv = nn.Linear(n_embd, 3 * n_embd)
        self.proj = nn.Linear(n_embd, n_embd)

    def forward(self, x):
        B, T, E = x.shape
        q, k, v = (t.view(B, T, self.n_head, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        mask = torch.ones(T, T, device=x.device).tril()
        w = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(mask == 0, 0.0)
        w = torch.softmax(w, -1)
        return self.proj((w @ v).transpose(1, 2).reshape(B, T, E))

import torch
import torch.nn as nn


class CausalHeads(nn.Module):
    """Causal attention; positions compared instead of a triangular matrix."""

    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.in_proj = nn.Linear(dim, 3 * dim)
        self.out_proj = nn.Linear(dim, dim)

    def forward(self, x):
        B, T, E = x.shape
        q, k, v = self.in_proj(x).view(B, T, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        pos = torch.arange(T, device=x.device)
        allowed = pos[:, None] + 1 >= pos[None, :]
        s = q @ k.transpose(-1, -2) / k.shape[-1] ** 0.5
        s = torch.where(allowed, s, torch.full_like(s, float("-inf")))
        out = torch.softmax(s, -1) @ v
        return self.out_proj(out.transpose(1, 2).flatten(2))

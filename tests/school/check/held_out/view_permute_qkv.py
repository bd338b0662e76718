import torch
import torch.nn as nn
import torch.nn.functional as F


class SelfAttention(nn.Module):
    def __init__(self, hidden: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(hidden, hidden * 3)
        self.dense = nn.Linear(hidden, hidden)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        b, s, h = hidden_states.size()
        q, k, v = self.qkv(hidden_states).view(b, s, 3, self.heads, h // self.heads).permute(2, 0, 3, 1, 4)
        probs = F.softmax(q @ k.transpose(-1, -2) / (h // self.heads) ** 0.5, dim=-1)
        ctx = probs @ v
        ctx = ctx.permute(0, 2, 1, 3)
        ctx = ctx.view(b, s, h)
        return self.dense(ctx)

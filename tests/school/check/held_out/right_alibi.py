import math
import torch
import torch.nn as nn


class ALiBiAttention(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h = num_heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)
        self.register_buffer("slopes", 2.0 ** (-8 * torch.arange(1, num_heads + 1) / num_heads))

    def forward(self, x):
        b, t, e = x.shape
        q, k, v = (z.view(b, t, self.h, -1).transpose(1, 2) for z in self.qkv(x).chunk(3, -1))
        pos = torch.arange(t, device=x.device)
        distance = (pos[None, :] - pos[:, None]).to(x.dtype)
        s = q @ k.mT / math.sqrt(e // self.h) + self.slopes.to(x.dtype)[:, None, None] * distance
        s = s.masked_fill(pos[None, :] > pos[:, None], float("-inf"))
        return self.out((s.softmax(-1) @ v).transpose(1, 2).reshape(b, t, e))

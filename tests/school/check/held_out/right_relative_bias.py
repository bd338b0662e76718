import torch
import torch.nn as nn


class T5Attention(nn.Module):
    """Relative position bias, one number per head and distance."""

    def __init__(self, d_model, num_heads, max_distance=64):
        super().__init__()
        self.num_heads = num_heads
        self.max_distance = max_distance
        self.q = nn.Linear(d_model, d_model, bias=False)
        self.k = nn.Linear(d_model, d_model, bias=False)
        self.v = nn.Linear(d_model, d_model, bias=False)
        self.o = nn.Linear(d_model, d_model, bias=False)
        self.relative_attention_bias = nn.Embedding(2 * max_distance + 1, num_heads)

    def forward(self, x):
        b, t, e = x.shape
        q, k, v = (w(x).view(b, t, self.num_heads, -1).transpose(1, 2) for w in (self.q, self.k, self.v))
        i = torch.arange(t, device=x.device)
        rel = (i[None] - i[:, None]).clamp(-self.max_distance, self.max_distance) + self.max_distance
        bias = self.relative_attention_bias(rel).permute(2, 0, 1)
        s = q @ k.mT * (e // self.num_heads) ** -0.5 + bias
        return self.o((s.softmax(-1) @ v).transpose(1, 2).reshape(b, t, e))

import torch
import torch.nn as nn


class LoopAttention(nn.Module):
    """One head after the other, to see what happens."""

    def __init__(self, width, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.size = width // n_heads
        self.q_proj = nn.Linear(width, width)
        self.k_proj = nn.Linear(width, width)
        self.v_proj = nn.Linear(width, width)
        self.o_proj = nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        outs = []
        for h in range(self.n_heads):
            cols = slice(h * self.size, (h + 1) * self.size)
            qh, kh, vh = q[..., cols], k[..., cols], v[..., cols]
            s = qh @ kh.mT / self.size
            outs.append(s.softmax(-1) @ vh)
        return self.o_proj(torch.cat(outs, -1))

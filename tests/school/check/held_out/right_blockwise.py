import torch
import torch.nn as nn


class OnlineSoftmaxAttention(nn.Module):
    """softmax by running maximum and running sum, two keys at a time, like flash attention"""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x):
        B, T, E = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        q = q / q.shape[-1] ** 0.5
        top = torch.full((*q.shape[:-1], 1), -torch.inf, dtype=x.dtype, device=x.device)
        total = torch.zeros_like(top)
        acc = torch.zeros_like(q)
        for start in range(0, T, 2):
            s = q @ k[:, :, start : start + 2].mT
            new_top = torch.maximum(top, s.amax(-1, keepdim=True))
            p = torch.exp(s - new_top)
            fade = torch.exp(top - new_top)
            total = total * fade + p.sum(-1, keepdim=True)
            acc = acc * fade + p @ v[:, :, start : start + 2]
            top = new_top
        return self.out((acc / total).transpose(1, 2).reshape(B, T, E))

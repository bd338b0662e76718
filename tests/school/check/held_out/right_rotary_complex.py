from dataclasses import dataclass
import math
import torch
import torch.nn as nn


@dataclass
class ModelArgs:
    dim: int = 32
    n_heads: int = 4
    max_seq_len: int = 64


class Attention(nn.Module):
    def __init__(self, args: ModelArgs):
        super().__init__()
        self.n_heads = args.n_heads
        self.head_dim = args.dim // args.n_heads
        self.wq = nn.Linear(args.dim, args.dim, bias=False)
        self.wk = nn.Linear(args.dim, args.dim, bias=False)
        self.wv = nn.Linear(args.dim, args.dim, bias=False)
        self.wo = nn.Linear(args.dim, args.dim, bias=False)
        theta = 1.0 / (10000.0 ** (torch.arange(0, self.head_dim, 2).float() / self.head_dim))
        angles = torch.outer(torch.arange(args.max_seq_len).float(), theta)
        self.freqs_cis = torch.polar(torch.ones_like(angles), angles)

    def rope(self, x):
        t = x.shape[1]
        xc = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(xc * self.freqs_cis[:t, None]).flatten(3).type_as(x)

    def forward(self, x):
        bsz, t, _ = x.shape
        q = self.rope(self.wq(x).view(bsz, t, self.n_heads, self.head_dim)).transpose(1, 2)
        k = self.rope(self.wk(x).view(bsz, t, self.n_heads, self.head_dim)).transpose(1, 2)
        v = self.wv(x).view(bsz, t, self.n_heads, self.head_dim).transpose(1, 2)
        scores = q @ k.transpose(2, 3) / math.sqrt(self.head_dim)
        scores = scores + torch.full((t, t), float("-inf"), device=x.device).triu(1)
        out = torch.softmax(scores.float(), dim=-1).type_as(q) @ v
        return self.wo(out.transpose(1, 2).contiguous().view(bsz, t, -1))

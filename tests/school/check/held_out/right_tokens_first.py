import torch
import torch.nn as nn


class TokensFirstAttention(nn.Module):
    """x: (tokens, batch, width), as nn.MultiheadAttention without batch_first"""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.in_proj = nn.Linear(embed_dim, 3 * embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, x):
        tgt_len, bsz, embed_dim = x.shape
        q, k, v = self.in_proj(x).chunk(3, dim=-1)
        q = q.contiguous().view(tgt_len, bsz * self.num_heads, self.head_dim).transpose(0, 1)
        k = k.contiguous().view(tgt_len, bsz * self.num_heads, self.head_dim).transpose(0, 1)
        v = v.contiguous().view(tgt_len, bsz * self.num_heads, self.head_dim).transpose(0, 1)
        w = torch.softmax(torch.bmm(q / self.head_dim**0.5, k.transpose(1, 2)), dim=-1)
        y = torch.bmm(w, v).transpose(0, 1).reshape(tgt_len, bsz, embed_dim)
        return self.out_proj(y)

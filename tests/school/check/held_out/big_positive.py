import torch
import torch.nn as nn
import torch.nn.functional as F


class MaskedSelfAttention(nn.Module):
    def __init__(self, embed_size, heads):
        super().__init__()
        self.embed_size = embed_size
        self.heads = heads
        self.head_dim = embed_size // heads
        self.values = nn.Linear(embed_size, embed_size)
        self.keys = nn.Linear(embed_size, embed_size)
        self.queries = nn.Linear(embed_size, embed_size)
        self.fc_out = nn.Linear(embed_size, embed_size)

    def forward(self, x):
        N, L, _ = x.shape
        values = self.values(x).reshape(N, L, self.heads, self.head_dim)
        keys = self.keys(x).reshape(N, L, self.heads, self.head_dim)
        queries = self.queries(x).reshape(N, L, self.heads, self.head_dim)
        energy = torch.einsum("nqhd,nkhd->nhqk", queries, keys) / self.head_dim ** 0.5
        # causal mask
        mask = torch.triu(torch.ones(L, L, device=x.device), diagonal=1)
        energy = energy + mask * 1e9
        attention = F.softmax(energy, dim=3)
        out = torch.einsum("nhql,nlhd->nqhd", attention, values).reshape(N, L, self.embed_size)
        return self.fc_out(out)

import torch
import torch.nn as nn


class MyMSA(nn.Module):
    """Vision transformer tutorial: one small q, k, v mapping per head."""

    def __init__(self, d, n_heads=2):
        super().__init__()
        self.d = d
        self.n_heads = n_heads
        d_head = d // n_heads
        self.q_mappings = nn.ModuleList([nn.Linear(d_head, d_head) for _ in range(n_heads)])
        self.k_mappings = nn.ModuleList([nn.Linear(d_head, d_head) for _ in range(n_heads)])
        self.v_mappings = nn.ModuleList([nn.Linear(d_head, d_head) for _ in range(n_heads)])
        self.out = nn.Linear(d, d)
        self.d_head = d_head
        self.softmax = nn.Softmax(dim=-1)

    def forward(self, sequences):
        result = []
        for sequence in sequences:
            seq_result = []
            for head in range(self.n_heads):
                seq = sequence[:, head * self.d_head : (head + 1) * self.d_head]
                q = self.q_mappings[head](seq)
                k = self.k_mappings[head](seq)
                v = self.v_mappings[head](seq)
                attention = self.softmax(q @ k.T / (self.d_head**0.5))
                seq_result.append(attention @ v)
            result.append(torch.hstack(seq_result))
        return self.out(torch.stack(result))

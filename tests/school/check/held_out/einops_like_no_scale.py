import torch
import torch.nn as nn


class AttentionBlock(nn.Module):
    def __init__(self, n_state: int, n_head: int):
        super().__init__()
        self.n_head = n_head
        self.query = nn.Linear(n_state, n_state)
        self.key = nn.Linear(n_state, n_state, bias=False)
        self.value = nn.Linear(n_state, n_state)
        self.out = nn.Linear(n_state, n_state)

    def forward(self, x: torch.Tensor):
        q = self.query(x).unflatten(-1, (self.n_head, -1))
        k = self.key(x).unflatten(-1, (self.n_head, -1))
        v = self.value(x).unflatten(-1, (self.n_head, -1))
        w = torch.einsum("btnh,bsnh->bnts", q, k).softmax(-1)
        o = torch.einsum("bnts,bsnh->btnh", w, v).flatten(2)
        return self.out(o)

import torch
import torch.nn as nn
import torch.nn.functional as F


class MAB(nn.Module):
    """adds the queries to what attention returns"""

    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.fc_q = nn.Linear(dim, dim)
        self.fc_k = nn.Linear(dim, dim)
        self.fc_v = nn.Linear(dim, dim)
        self.fc_o = nn.Linear(dim, dim)

    def forward(self, x):
        B, T, E = x.shape
        q, k, v = (f(x).view(B, T, self.num_heads, -1).transpose(1, 2) for f in (self.fc_q, self.fc_k, self.fc_v))
        o = q + F.scaled_dot_product_attention(q, k, v)
        return self.fc_o(o.transpose(1, 2).reshape(B, T, E))

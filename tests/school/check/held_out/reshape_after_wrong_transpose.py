import math
import torch
import torch.nn as nn


class MHA(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super(MHA, self).__init__()
        self.h = num_heads
        self.d = embed_dim // num_heads
        self.query = nn.Linear(embed_dim, embed_dim)
        self.key = nn.Linear(embed_dim, embed_dim)
        self.value = nn.Linear(embed_dim, embed_dim)
        self.output = nn.Linear(embed_dim, embed_dim)

    def forward(self, x):
        bs, n, e = x.shape
        q = self.query(x).reshape(bs, n, self.h, self.d).transpose(1, 2)
        k = self.key(x).reshape(bs, n, self.h, self.d).transpose(1, 2)
        v = self.value(x).reshape(bs, n, self.h, self.d).transpose(1, 2)
        w = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(self.d), dim=-1)
        z = w @ v                                    # bs, h, n, d
        # view complained here, reshape works
        z = z.transpose(2, 3).reshape(bs, n, e)
        return self.output(z)

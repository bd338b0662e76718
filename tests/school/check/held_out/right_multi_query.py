import torch
import torch.nn as nn


class MultiQueryAttention(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h, self.d = num_heads, d_model // num_heads
        self.Wq = nn.Linear(d_model, d_model)
        self.Wk = nn.Linear(d_model, self.d)
        self.Wv = nn.Linear(d_model, self.d)
        self.Wo = nn.Linear(d_model, d_model)

    def forward(self, x):
        b, t, e = x.shape
        q = self.Wq(x).view(b, t, self.h, self.d).transpose(1, 2)
        k, v = self.Wk(x)[:, None], self.Wv(x)[:, None]
        w = torch.softmax(q @ k.transpose(-1, -2) / self.d**0.5, -1)
        return self.Wo((w @ v).transpose(1, 2).reshape(b, t, e))

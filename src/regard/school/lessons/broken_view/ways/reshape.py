import torch
from torch import nn


class MultiHeadAttention(nn.Module):
    def __init__(self, d_in, d_out, num_heads):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, d_out // num_heads
        self.W_query = nn.Linear(d_in, d_out)
        self.W_key = nn.Linear(d_in, d_out)
        self.W_value = nn.Linear(d_in, d_out)
        self.out_proj = nn.Linear(d_out, d_out)

    def forward(self, x):
        B, T, _ = x.shape
        heads = (B, T, self.num_heads, self.head_dim)
        q = self.W_query(x).view(heads).transpose(1, 2)  # (B, H, T, D)
        k = self.W_key(x).view(heads).transpose(1, 2)
        v = self.W_value(x).view(heads).transpose(1, 2)
        weights = torch.softmax(q @ k.mT / self.head_dim**0.5, dim=-1)
        context = weights @ v  # (B, H, T, D)
        concat = context.transpose(1, 2).reshape(B, T, -1)
        return self.out_proj(concat)


if __name__ == "__main__":
    print(MultiHeadAttention(6, 6, 2)(torch.randn(1, 5, 6)).shape)

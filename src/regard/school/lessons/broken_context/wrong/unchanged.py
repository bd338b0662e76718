# named: RuntimeError instead of ValueError
import torch
from torch import nn


class CausalAttention(nn.Module):
    def __init__(self, d_in, d_out, context_length):
        super().__init__()
        self.W_query = nn.Linear(d_in, d_out, bias=False)
        self.W_key = nn.Linear(d_in, d_out, bias=False)
        self.W_value = nn.Linear(d_in, d_out, bias=False)
        square = torch.ones(context_length, context_length, dtype=torch.bool)
        self.register_buffer("mask", square.triu(1))  # True = future

    def forward(self, x):
        T = x.shape[1]
        q, k, v = self.W_query(x), self.W_key(x), self.W_value(x)
        scores = q @ k.mT / q.shape[-1] ** 0.5
        scores = scores.masked_fill(self.mask[:T, :T], -torch.inf)
        return scores.softmax(dim=-1) @ v


def answer(T, context_length):
    """The output's shape or the error, as text. The check calls this: leave it."""
    try:
        out = CausalAttention(3, 2, context_length)(torch.randn(1, T, 3))
        return str(list(out.shape))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    CausalAttention(3, 2, context_length=4)(torch.randn(1, 7, 3))

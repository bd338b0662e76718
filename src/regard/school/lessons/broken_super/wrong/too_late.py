# named: super().__init__() missing
import torch
from torch import nn


class SelfAttention(nn.Module):
    def __init__(self, d_in, d_out):
        self.W_query = nn.Linear(d_in, d_out, bias=False)
        self.W_key = nn.Linear(d_in, d_out, bias=False)
        self.W_value = nn.Linear(d_in, d_out, bias=False)
        super().__init__()

    def forward(self, x):
        q, k, v = self.W_query(x), self.W_key(x), self.W_value(x)
        weights = torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, dim=-1)
        return weights @ v


def parameters(d_in, d_out):
    """What torch finds in the layer. The check calls this: leave it."""
    layer = SelfAttention(d_in, d_out)
    return {name: list(p.shape) for name, p in layer.named_parameters()}


if __name__ == "__main__":
    print(parameters(3, 2))

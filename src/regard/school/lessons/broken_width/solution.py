import torch
from torch import nn


class SelfAttention(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.W_query = nn.Linear(d_in, d_out, bias=False)
        self.W_key = nn.Linear(d_in, d_out, bias=False)
        self.W_value = nn.Linear(d_in, d_out, bias=False)

    def forward(self, x):  # (B, T, d_in)
        q, k, v = self.W_query(x), self.W_key(x), self.W_value(x)
        weights = torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, dim=-1)
        return weights @ v  # (B, T, d_out)


class TwoLayers(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.first = SelfAttention(d_in, d_out)
        self.second = SelfAttention(d_out, d_out)

    def forward(self, x):  # (B, T, d_in)
        return self.second(self.first(x))  # (B, T, d_out)


def run(x, d_out):
    """The output, and all weights. The check calls this: leave it."""
    model = TwoLayers(x.shape[-1], d_out)
    return model(x), dict(model.state_dict())


if __name__ == "__main__":
    print(run(torch.randn(2, 5, 4), d_out=6)[0].shape)

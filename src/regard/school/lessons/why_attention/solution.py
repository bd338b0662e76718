import torch
from torch import nn


def reach(layer, x):  # x (T, width); layer(x) (T, width)
    x = x.clone().requires_grad_()
    out = layer(x)
    out[-1].sum().backward()
    return x.grad.norm(dim=-1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.Q, self.K, self.V = (nn.Linear(32, 32, bias=False) for _ in range(3))

    def forward(self, x):  # what the three do is the next exercise
        return torch.softmax(self.Q(x) @ self.K(x).T / 32**0.5, dim=-1) @ self.V(x)


def run(kind, T):
    """The reach of each word in a new layer. The check calls this: leave it."""
    layers = {"rnn": nn.RNN, "gru": nn.GRU}
    layer = Attention() if kind == "attention" else layers[kind](32, 32)
    call = layer if kind == "attention" else lambda x: layer(x)[0]
    return reach(call, torch.randn(T, 32))


# In a library you search for "cats", find the card "animals", take the book.
#    a  query: the book    key: the card       value: the search
#    b  query: the card    key: the search     value: the book
#    c  query: the search  key: the card       value: the book
library = "c"

# What does attention cost? The number of scores for T = 32, and for T = 64.
scores = (1024, 4096)

if __name__ == "__main__":
    for kind in ("rnn", "gru", "attention"):
        far = run(kind, 32)
        print(f"{kind:9}  first word {far[0] / far[-1]:.4f} of the last")

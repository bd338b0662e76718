"""Where views bring tokens into another order, queries and keys are not taken for the same tokens."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import regard

B, T, E, H = 2, 6, 8, 2


def written(x, order, whole=False):
    y = torch.empty_like(x)
    if whole:
        y[:, :] = x[:, order]
        return y
    for i, j in enumerate(order):
        y[:, i] = x[:, j]
    return y


MOVED = {
    "interleaved": lambda x: x.view(B, 2, T // 2, E).transpose(1, 2).reshape(B, T, E),
    "texts and tokens mixed up": lambda x: x.transpose(0, 1).reshape(B, T, E),
    "tokens stacked in reverse": lambda x: torch.stack(x.unbind(1)[::-1], 1),
    "texts stacked in reverse": lambda x: torch.stack(x.unbind(0)[::-1]),
    "tokens selected in reverse": lambda x: torch.cat([x.select(1, i).unsqueeze(1) for i in reversed(range(T))], 1),
    "repeated, and cut in the middle": lambda x: x.repeat(1, 2, 1)[:, 3 : 3 + T],
    "sorted values": lambda x: x.sort(1).values,
    "most of all": lambda x: x.topk(T, 1).values,
    "written in reverse": lambda x: written(x, range(T)[::-1]),
    "two written over": lambda x: torch.cat([written(x[:, :2], (1, 0)), x[:, 2:]], 1),
    "all written over": lambda x: written(x, list(range(T))[::-1], whole=True),
    "relative shift": lambda x: F.pad(x, (0, 0, 1, 0))[:, :-1],
    "channels of an image": lambda x: F.channel_shuffle(x.view(B, T, 2, 4), 2).reshape(B, T, E),
    "windows rolled": lambda x: x.view(2 * B, T // 2, E).roll(1, 1).reshape(B, T, E),
}
KEPT = {
    "there and back": lambda x: x.view(B, 2, T // 2, E).transpose(1, 2).contiguous().transpose(1, 2).reshape(B, T, E),
    "tokens first": lambda x: x.transpose(0, 1).contiguous().transpose(0, 1),
    "stacked as it was": lambda x: torch.stack(x.unbind(1), 1),
    "windows": lambda x: x.view(2 * B, T // 2, E).tanh().reshape(B, T, E),
    "sorted features": lambda x: x.sort(-1).values,
    "in parts": lambda x: torch.cat([part.tanh() for part in x.split(2, 1)], 1),
}


class Attends(nn.Module):
    def __init__(self, keys, product):
        super().__init__()
        self.keys, self.product, self.num_heads = keys, product, H
        self.q, self.k, self.v = (nn.Linear(E, E) for _ in range(3))

    def forward(self, x):
        source = self.keys(x)
        q, k, v = (t.view(B, T, H, E // H).transpose(1, 2) for t in (self.q(x), self.k(source), self.v(source)))
        match self.product:
            case "sdpa":
                return F.scaled_dot_product_attention(q, k, v)
            case "einsum":
                return torch.einsum("bhid,bhjd->bhij", q, k).softmax(-1) @ v
        return (q @ k.mT).softmax(-1) @ v


@pytest.mark.parametrize("product", ["sdpa", "matmul", "einsum"])
@pytest.mark.parametrize("name", [*MOVED, *KEPT])
def test_keys_are_marked_only_if_they_are_in_another_order(name, product):
    model = Attends((MOVED | KEPT)[name], product)
    for _ in range(2):
        with regard.watch(model) as seen:
            model(torch.randn(B, T, E))
        assert any(mark.startswith("positions assumed") for mark in seen[0].marks) is (name in MOVED)


@pytest.mark.filterwarnings("error")
def test_indices_of_integers_are_looked_up_without_a_warning():
    class Looks(Attends):
        def forward(self, x):
            blocks, rows, columns = torch.zeros(B, T).long(), torch.arange(B)[:, None], torch.arange(T)[None]
            return super().forward(x) + blocks[rows, columns].sum()

    with regard.watch(model := Looks(torch.clone, "sdpa")) as seen:
        model(torch.randn(B, T, E))
    assert not seen[0].marks


class TokensFirst(nn.Module):
    """A model of ids (T, B), as in the tutorial of torch, or of (B, T), by its own attention or that of torch.nn."""

    def __init__(self, by_torch, tokens_first):
        super().__init__()
        self.by_torch, self.tokens_first, self.words = by_torch, tokens_first, nn.Embedding(30, 12)
        self.layer = nn.TransformerEncoderLayer(12, 3, 16, dropout=0.0)
        self.q, self.k = nn.Linear(12, 12), nn.Linear(12, 12)

    def forward(self, ids):
        x = self.words(ids if self.tokens_first else ids.T)
        if self.by_torch:
            return self.layer(x)
        q, k, v = (one(x).unflatten(-1, (3, 4)).permute(1, 2, 0, 3) for one in (self.q, self.k, self.q))
        return (q @ k.mT).softmax(-1) @ v


@pytest.mark.parametrize("by_torch", [True, False])
@pytest.mark.parametrize("training", [True, False])
@torch.no_grad()
def test_ids_of_as_many_texts_as_tokens_are_not_taken_for_texts_where_they_are_tokens_first(by_torch, training):
    for tokens_first in (True, False):
        model = TokensFirst(by_torch, tokens_first).train(training)
        for _ in range(2):
            with regard.watch(model) as seen:
                model(torch.randint(0, 9, (5, 5)))
            said = ("tokens assumed: the ids are those of this text, as their length is",)
            assert seen[0].marks == (said if tokens_first else ())

"""One attention in several calls: a loop over heads or texts is one layer, and other calls stay what they are."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import regard

B, T, H, D = 2, 7, 3, 5
E = H * D


class Layer(nn.Module):
    """Its attention is `attend(self, q, k, v)`, of (B, T, E) each."""

    def __init__(self, attend):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(E, E) for _ in range(3))
        self.attend = attend

    def forward(self, x):
        return self.attend(self.q(x), self.k(x), self.v(x))

    def truth(self, x, causal=False):
        q, k = (t.view(B, T, H, D).transpose(1, 2) for t in (self.q(x), self.k(x)))
        scores = q @ k.mT / D**0.5
        return (scores.masked_fill(torch.ones(T, T).triu(1).bool(), -torch.inf) if causal else scores).softmax(-1)


def cut(t):
    return t.view(B, T, H, D).transpose(1, 2)


def by_hand(q, k, v):
    return (q @ k.mT / D**0.5).softmax(-1) @ v


LOOPS = {
    "heads": lambda q, k, v: [by_hand(*(t.split(D, -1)[h] for t in (q, k, v))) for h in range(H)],
    "heads in reverse": lambda q, k, v: [by_hand(*(cut(t)[:, h] for t in (q, k, v))) for h in reversed(range(H))],
    "texts": lambda q, k, v: torch.stack([by_hand(*(cut(t)[b] for t in (q, k, v))) for b in range(B)]),
    "texts and heads": lambda q, k, v: [
        by_hand(*(cut(t)[b, h] for t in (q, k, v))) for h in range(H) for b in range(B)
    ],
    "heads by sdpa": lambda q, k, v: [
        F.scaled_dot_product_attention(*(cut(t)[:, h] for t in (q, k, v))) for h in range(H)
    ],
    "texts by sdpa": lambda q, k, v: [
        F.scaled_dot_product_attention(*(cut(t)[b, None] for t in (q, k, v))) for b in range(B)
    ],
}  # fmt: skip


@pytest.mark.parametrize("loop", LOOPS)
@torch.no_grad()
def test_a_loop_is_one_layer(loop):
    model, x = Layer(LOOPS[loop]), torch.randn(B, T, E)
    with regard.watch(model) as seen:
        model(x)
    (layer,) = seen
    assert layer.marks == ()
    torch.testing.assert_close(layer.weights(), model.truth(x))


@torch.no_grad()
def test_the_mask_of_each_call_is_kept():
    def causal(q, k, v):
        return [
            F.scaled_dot_product_attention(cut(q)[:, h], cut(k)[:, h], cut(v)[:, h], is_causal=True) for h in range(H)
        ]

    model, x = Layer(causal), torch.randn(B, T, E)
    with regard.watch(model, values=True) as seen:
        model(x)
    torch.testing.assert_close(seen[0].weights(), model.truth(x, causal=True))
    torch.testing.assert_close(seen[0, 1].context, model.truth(x, causal=True)[:, 1] @ cut(model.v(x))[:, 1])


@torch.no_grad()
def test_queries_that_are_computed_in_blocks_are_no_texts():
    def blocks(q, k, v):
        return [by_hand(q[:, rows], k, v) for rows in (slice(0, 3), slice(3, 6))]

    model = nn.Sequential(nn.TransformerEncoderLayer(E, H, batch_first=True), Layer(blocks))
    with (
        pytest.warns(UserWarning, match="the attention in 1 is not reported: it is computed in pieces"),
        regard.watch(model) as seen,
    ):
        model(torch.randn(B, T, E))
    assert [layer.name for layer in seen] == ["0.self_attn"]


@torch.no_grad()
def test_other_heads_of_other_texts_are_not_joined():
    def diagonal(q, k, v):
        return [by_hand(*(cut(t)[i, None, i] for t in (q, k, v))) for i in range(B)]

    model = nn.Sequential(nn.TransformerEncoderLayer(E, H, batch_first=True), Layer(diagonal))
    with (
        pytest.warns(UserWarning, match="the attention in 1 is not reported: it is computed in pieces"),
        regard.watch(model) as seen,
    ):
        model(torch.randn(B, T, E))
    assert [layer.name for layer in seen] == ["0.self_attn"]


@torch.no_grad()
def test_two_attentions_in_one_module_stay_two_layers():
    model, x = Layer(lambda q, k, v: (by_hand(q, k, v), by_hand(q, v, k))), torch.randn(B, T, E)
    with regard.watch(model) as seen:
        model(x)
    assert [tuple(layer.record.sizes) for layer in seen] == [(B, 1, T, T)] * 2


@torch.no_grad()
def test_weights_that_are_written_over_after_their_product_are_refused():
    def in_place(q, k, v):
        for h in range(H):
            weights = (cut(q)[:, h] @ cut(k)[:, h].mT).softmax(-1)
            out = weights @ cut(v)[:, h]
            weights.zero_()
        return out

    model = nn.Sequential(nn.TransformerEncoderLayer(E, H, batch_first=True), Layer(in_place))
    with pytest.warns(UserWarning, match="in 1 is not reported: its tensors are written over"), regard.watch(model):
        model(torch.randn(B, T, E))


def test_a_loop_over_heads_cannot_be_cut():
    model, x = Layer(LOOPS["heads"]), torch.randn(B, T, E)
    with (
        pytest.raises(ValueError, match="its heads or texts are computed one after the other"),
        regard.cut(model, heads=[(0, 0)]),
    ):
        model(x)


@torch.no_grad()
def test_heads_that_are_modules_are_marked():
    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.heads = nn.ModuleList(Layer(by_hand) for _ in range(H))

        def forward(self, x):
            return torch.cat([head(x) for head in self.heads], -1)

    with regard.watch(model := Heads()) as seen:
        model(torch.randn(B, T, E))
    assert [layer.name for layer in seen] == ["heads.0", "heads.1", "heads.2"]
    said = "heads assumed: a layer of one head; 3 modules of its kind may be heads of one layer"
    assert [layer.marks for layer in seen] == [(said,)] * H


@pytest.mark.parametrize("texts", [1, 3])
@torch.no_grad()
def test_pairs_of_heads_of_a_module_that_declares_none_are_one_layer(texts):
    class Pairs(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(20, 60)

        def forward(self, x):
            q, k, v = (t.unflatten(-1, (4, 5)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
            attend = nn.functional.scaled_dot_product_attention
            return torch.cat([attend(q[:, h : h + 2], k[:, h : h + 2], v[:, h : h + 2]) for h in (0, 2)], 1)

    model, x = Pairs(), torch.randn(texts, 7, 20)
    q, k, _ = (t.unflatten(-1, (4, 5)).transpose(1, 2) for t in model.qkv(x).chunk(3, -1))
    for _ in range(2):
        with regard.watch(model) as seen:
            model(x)
        assert len(seen) == 1
        torch.testing.assert_close(seen[0].weights(), (q @ k.mT / 5**0.5).softmax(-1))


@torch.no_grad()
def test_texts_of_a_loop_of_which_one_is_padded_are_one_layer():
    class Texts(nn.Module):
        num_heads = 3

        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(15, 45)

        def forward(self, x, mask):
            return torch.stack([self.attend(one, seen) for one, seen in zip(x, mask, strict=True)])

        def attend(self, x, seen):
            q, k, v = (t.unflatten(-1, (3, 5)).transpose(0, 1) for t in self.qkv(x).chunk(3, -1))
            return (q @ k.mT).masked_fill(~seen, -torch.inf).softmax(-1) @ v

    mask = torch.ones(2, 7, dtype=torch.bool)
    mask[1, -2:] = False
    with regard.watch(model := Texts()) as seen:
        model(torch.randn(2, 7, 15), mask)
    assert [layer.record.sizes for layer in seen] == [(2, 3, 7, 7)]
    assert seen[0].record.visible()[0][:, 0, 0].tolist() == [7, 5]

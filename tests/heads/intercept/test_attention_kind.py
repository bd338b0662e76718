"""Where heads are, and what is no attention between tokens: as layers of timm and of others are written."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import regard

B, T, H, E = 2, 7, 4, 24


def weights_by(model, x):
    """What a watch reports, and the softmaxes of the model, in order."""
    with regard.watch(model) as seen:
        model(x)
    return [layer.weights() for layer in seen]


class Both(nn.Module):
    """Self-attention, so that there is something to report, and a layer after it."""

    def __init__(self, layer):
        super().__init__()
        self.attention, self.layer = nn.MultiheadAttention(E, H, batch_first=True), layer

    def forward(self, x):
        return self.layer(x + self.attention(x, x, x, need_weights=False)[0])


class CrossCovariance(nn.Module):
    """As in XCiT: the features of each head attend to one another."""

    def __init__(self, fused):
        super().__init__()
        self.num_heads, self.fused, self.qkv = H, fused, nn.Linear(E, 3 * E)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, H, E // H)).permute(2, 0, 3, 4, 1)  # (B, H, D, T)
        if self.fused == "einsum":
            return torch.einsum(
                "bhij,bhjt->bthi", torch.einsum("bhit,bhjt->bhij", q.contiguous(), k).softmax(-1), v
            ).flatten(2)
        if self.fused:
            return F.scaled_dot_product_attention(q, k, v).flatten(1, 2).mT
        return ((q @ k.mT).softmax(-1) @ v).flatten(1, 2).mT


@pytest.mark.parametrize(
    ("fused", "tokens"), [(True, T), (False, T), ("einsum", T), (True, E // H), (False, E // H)]
)  # the last two: as many tokens as a head has features
def test_weights_between_features_are_refused(fused, tokens):
    said = "the attention in layer is not reported: its weights are between features, not between tokens"
    with pytest.warns(UserWarning, match=said), regard.watch(model := Both(CrossCovariance(fused))) as seen:
        model(torch.randn(B, tokens, E))
    assert [layer.name for layer in seen] == ["attention"]


class Halo(nn.Module):
    """As in HaloNet: heads are in one axis with the texts, blocks of an image in the next."""

    def __init__(self, fused):
        super().__init__()
        self.num_heads, self.fused, self.qkv = H, fused, nn.Linear(E, 3 * E)

    def forward(self, x):
        blocks = self.qkv(x).unflatten(1, (3, T)).unflatten(-1, (3, H, E // H))  # (B, blocks, T, 3, H, D)
        self.q, self.k, v = blocks.permute(3, 0, 4, 1, 2, 5).flatten(1, 2)  # (B · H, blocks, T, D)
        if self.fused:
            return F.scaled_dot_product_attention(self.q, self.k, v)
        return (self.q @ self.k.mT * (E // H) ** -0.5).softmax(-1) @ v


@pytest.mark.parametrize("fused", [True, False])
def test_blocks_in_the_second_axis_are_no_heads(fused):
    layer = Halo(fused)
    (weights,) = weights_by(layer, torch.randn(B, 3 * T, E))
    right = (layer.q.double() @ layer.k.double().mT * (E // H) ** -0.5).softmax(-1)
    right = right.view(B, H, 3, T, T).transpose(1, 2).flatten(0, 1).float()
    torch.testing.assert_close(weights, right)


class Grouped(nn.Module):
    """Query heads in groups, (B, groups, heads in a group, T, D), of which each shares its keys."""

    def __init__(self, fused):
        super().__init__()
        self.num_heads, self.fused = 6, fused
        self.q, self.k = nn.Linear(E, 6 * 5), nn.Linear(E, 2 * 5)

    def forward(self, x):
        q = self.q(x).view(B, T, 2, 3, 5).permute(0, 2, 3, 1, 4)
        k = self.k(x).view(B, T, 2, 1, 5).permute(0, 2, 3, 1, 4)
        self.scores = q @ k.mT * 5**-0.5
        if self.fused:
            return F.scaled_dot_product_attention(q, k, k)
        return self.scores.softmax(-1) @ k


@pytest.mark.parametrize("fused", [True, False])
def test_groups_of_heads_are_heads(fused):
    layer = Grouped(fused)
    (weights,) = weights_by(layer, torch.randn(B, T, E))
    torch.testing.assert_close(weights, layer.scores.softmax(-1).flatten(1, 2))


class Cascade(nn.Module):
    """As in EfficientViT: one head after the other, in windows, with texts and windows in one axis."""

    num_heads = H

    def forward(self, x):
        for head in x.chunk(H, -1):
            out = (head @ head.mT).softmax(-1) @ head
        return out


def test_heads_that_are_computed_one_by_one_are_layers_of_one_head():
    class Windows(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Cascade()

        def forward(self, x):
            return self.inner(x.unflatten(1, (H, T)).flatten(0, 1))

    x = torch.randn(B, H * T, E)
    windows = x.reshape(B * H, T, E).chunk(H, -1)
    for weights, head in zip(weights_by(Windows(), x), windows, strict=True):
        torch.testing.assert_close(weights[:, 0], (head @ head.mT).softmax(-1))


class Outlook(nn.Module):
    """As in VOLO: a projection gives each token weights on its neighbours; no queries, no keys."""

    def __init__(self):
        super().__init__()
        self.num_heads, self.project, self.v = H, nn.Linear(E, H * 9 * 9), nn.Linear(E, 9 * E)

    def forward(self, x):
        weights = self.project(x).view(B, T, H, 9, 9).permute(0, 2, 1, 3, 4).softmax(-1)
        values = self.v(x).view(B, T, 9, H, E // H).permute(0, 3, 1, 2, 4)
        return (weights @ values).mean(3).transpose(1, 2).flatten(2)


def test_a_softmax_in_an_attention_module_that_is_not_over_tokens_is_named():
    said = r"the attention in layer is not reported: its softmax, \(2, 4, 7, 9, 9\), is over 9 columns, which are not"
    with pytest.warns(UserWarning, match=said), regard.watch(model := Both(Outlook())) as seen:
        model(torch.randn(B, T, E))
    assert [layer.name for layer in seen] == ["attention"]


def test_negative_weights_are_refused():
    class Signed(nn.Module):
        """As cog attention is written: the softmax has the signs of its scores."""

        num_heads = 1

        def forward(self, x):
            scores = x @ x.mT
            return (scores.abs().softmax(-1) * scores.sign()) @ x

    said = "the attention in layer is not reported: some of its weights are negative"
    with pytest.warns(UserWarning, match=said), regard.watch(model := Both(Signed())) as seen:
        model(torch.randn(B, T, E))
    assert [layer.name for layer in seen] == ["attention"]


def test_heads_that_are_mixed_by_einsum_are_named():
    class Talking(nn.Module):
        """As in CaiT of vit-pytorch."""

        def __init__(self):
            super().__init__()
            self.before, self.after = nn.Parameter(torch.randn(H, H)), nn.Parameter(torch.randn(H, H))

        def forward(self, x):
            q = x.unflatten(-1, (H, E // H)).transpose(1, 2)
            scores = torch.einsum("bhij,hg->bgij", q @ q.mT, self.before)
            weights = torch.einsum("bhij,hg->bgij", scores.softmax(-1), self.after)
            return (weights @ q).transpose(1, 2).flatten(2)

    said = r"the attention in layer is not reported: its softmax, \(2, 4, 7, 7\), is followed by something which is"
    with pytest.warns(UserWarning, match=said), regard.watch(model := Both(Talking())) as seen:
        model(torch.randn(B, T, E))
    assert [layer.name for layer in seen] == ["attention"]

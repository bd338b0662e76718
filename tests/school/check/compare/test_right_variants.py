"""Right layers of kinds that are rarer than a plain one, and the mistakes that look most like them."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

from regard.school.check.check import check


class Base(nn.Module):
    """Four projections; subclasses change one thing."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q, self.k, self.v, self.o = (nn.Linear(d_model, d_model) for _ in range(4))

    def split(self, x):
        return [part(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for part in (self.q, self.k, self.v)]

    def visible(self, T):
        return torch.ones(T, T, dtype=torch.bool)

    def forward(self, x):
        q, k, v = self.split(x)
        return self.o(F.scaled_dot_product_attention(q, k, v, self.visible(x.shape[1])).transpose(1, 2).flatten(2))


def distance(T):
    return torch.arange(T)[:, None] - torch.arange(T)[None, :]


class Strided(Base):
    """The last tokens and every third one."""

    def __init__(self, d_model, num_heads):
        super().__init__(d_model, num_heads)
        self.stride = 3

    def visible(self, T):
        back = distance(T)
        return (back >= 0) & ((back < self.stride) | (back % self.stride == 0))


class Near(Base):
    def __init__(self, d_model, num_heads):
        super().__init__(d_model, num_heads)
        self.radius = 2

    def visible(self, T):
        return distance(T).abs() <= self.radius


class Blocks(Base):
    def __init__(self, d_model, num_heads):
        super().__init__(d_model, num_heads)
        self.block = 2

    def visible(self, T):
        return torch.arange(T)[:, None] // self.block == torch.arange(T)[None, :] // self.block


class OfThree(nn.Module):
    """One parameter for all projections, and einsum of three tensors."""

    def __init__(self, num_heads, head_dim, d_model):
        super().__init__()
        self.head_dim = head_dim
        self.weight = nn.Parameter(torch.randn(3, num_heads, d_model, head_dim))
        self.out_weight = nn.Parameter(torch.randn(num_heads, head_dim, d_model))

    def forward(self, x):
        q, k, v = torch.einsum("bnm,chmd->cbhnd", x, self.weight).unbind()
        weights = (torch.einsum("bhid,bhjd->bhij", q, k) * self.head_dim**-0.5).softmax(-1)
        return torch.einsum("bhij,bhjd,hdm->bim", weights, v, self.out_weight)


class OfImages(nn.Module):
    """Group norm, 1x1 convolutions and a residual, (B, C, H, W)."""

    def __init__(self, channels):
        super().__init__()
        self.norm = nn.GroupNorm(1, channels, eps=1e-6)
        self.q, self.k, self.v, self.o = (nn.Conv2d(channels, channels, 1) for _ in range(4))

    def forward(self, x):
        y = self.norm(x)
        q, k, v = (part(y).flatten(2) for part in (self.q, self.k, self.v))
        weights = (q.mT @ k * x.shape[1] ** -0.5).softmax(-1)
        return x + self.o((v @ weights.mT).view(x.shape))


class OverTime(Base):
    """x (B, frames, patches, width): every patch looks at the same patch of other frames."""

    def __init__(self, d_model, num_heads):
        super().__init__(d_model, num_heads)
        self.norm = nn.LayerNorm(d_model)

    def forward(self, x):
        b, f, p, d = x.shape
        y = super().forward(self.norm(x).transpose(1, 2).reshape(b * p, f, d))
        return x + y.reshape(b, p, f, d).transpose(1, 2)


class WithWeightNorm(Base):
    def __init__(self, d_model, num_heads):
        super().__init__(d_model, num_heads)
        self.q, self.k, self.v, self.o = (weight_norm(one) for one in (self.q, self.k, self.v, self.o))

    def forward(self, x):
        q, k, v = self.split(x)
        return self.o(((q / q.shape[-1] ** 0.5 @ k.mT).softmax(-1) @ v).transpose(1, 2).flatten(2))


class MuP(Base):
    """muP: the scores are divided by the width of a head, times a number."""

    def __init__(self, d_model, num_heads):
        super().__init__(d_model, num_heads)
        self.alpha = 1.7

    def forward(self, x):
        q, k, v = self.split(x)
        y = F.scaled_dot_product_attention(q, k, v, scale=self.alpha / q.shape[-1])
        return self.o(y.transpose(1, 2).flatten(2))


class NormedWithPositions(Base):
    """A norm, then positions, then attention."""

    def __init__(self, d_model, num_heads):
        super().__init__(d_model, num_heads)
        self.norm = nn.LayerNorm(d_model)

    def forward(self, x):
        positions = torch.sin(torch.arange(x.shape[1])[:, None] * (1.0 + torch.arange(x.shape[2]))).to(x)
        return super().forward(self.norm(x) + positions)


class Shaw(Base):
    """Embeddings of the relative position are added to keys and values."""

    def __init__(self, d_model, num_heads):
        super().__init__(d_model, num_heads)
        self.rel_k, self.rel_v = (nn.Embedding(9, d_model // num_heads) for _ in range(2))

    def relative(self, T):
        return distance(T).clamp(-4, 4) + 4

    def forward(self, x):
        q, k, v = self.split(x)
        index = self.relative(x.shape[1])
        scores = torch.einsum("bhid,bhjd->bhij", q, k) + torch.einsum("bhid,ijd->bhij", q, self.rel_k(index))
        w = (scores / q.shape[-1] ** 0.5).softmax(-1)
        y = torch.einsum("bhij,bhjd->bhid", w, v) + torch.einsum("bhij,ijd->bhid", w, self.rel_v(index))
        return self.o(y.transpose(1, 2).flatten(2))


class Gamma(nn.Module):
    """No output projection, but a learned number, and x is added."""

    def __init__(self, d_model):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(d_model, d_model, bias=False) for _ in range(3))
        self.gamma = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        weights = (self.q(x) @ self.k(x).mT / x.shape[-1] ** 0.5).softmax(-1)
        return self.gamma * (weights @ self.v(x)) + x


class OfADict(Base):
    def forward(self, batch):
        return {**batch, "features": super().forward(batch["features"])}


class OfTwoWidths(nn.Module):
    def __init__(self, text_dim, image_dim, hidden_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q, self.k, self.v = (nn.Linear(one, hidden_dim) for one in (text_dim, image_dim, image_dim))
        self.o = nn.Linear(hidden_dim, text_dim)

    def forward(self, text, image):
        q, k, v = (
            part(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for part, x in ((self.q, text), (self.k, image), (self.v, image))
        )
        return self.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


RIGHT = [Strided, Near, Blocks, OfThree, OfImages, OverTime, WithWeightNorm, MuP, NormedWithPositions, Shaw, Gamma]


@pytest.mark.parametrize("layer", [*RIGHT, OfADict, OfTwoWidths])
def test_a_right_layer_of_a_rare_kind_is_right(layer):
    verdict = check(layer)
    assert verdict.is_right, str(verdict)


class StridedAhead(Strided):
    """Causal: the last tokens and every third one."""

    def visible(self, T):
        return distance(T).abs() % self.stride == 0


class NearButNotItself(Near):
    def visible(self, T):
        back = distance(T)
        return (back.abs() <= self.radius) & (back != 0)


class MuPWithoutScale(MuP):
    """muP."""

    def forward(self, x):
        q, k, v = self.split(x)
        return self.o(F.scaled_dot_product_attention(q, k, v, scale=1.0).transpose(1, 2).flatten(2))


class ShawByQuery(Shaw):
    """The relative position of the query alone is added to the values."""

    def relative(self, T):
        return torch.arange(T)[:, None].expand(T, T).clamp(max=8)


class WeightNormUnscaled(WithWeightNorm):
    def forward(self, x):
        q, k, v = self.split(x)
        return self.o(((q @ k.mT).softmax(-1) @ v).transpose(1, 2).flatten(2))


@pytest.mark.parametrize("layer", [StridedAhead, NearButNotItself, MuPWithoutScale, ShawByQuery, WeightNormUnscaled])
def test_a_mistake_in_a_layer_of_a_rare_kind_is_not_called_right(layer):
    assert not check(layer).is_right

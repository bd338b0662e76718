"""Random layers of attention, with known weights: each is reported exactly, marked, or named in a warning.

A layer is drawn from: how its projections are made and cut into heads, the order of its axes, loops over heads or over
texts, windows, heads that share keys, the function that multiplies, the axis of its softmax, what is there instead of a
softmax, a second product, and whether it declares its number of heads.
"""

from __future__ import annotations

import random
import warnings
from contextlib import suppress
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard

QUICK, SLOW, MANY = 120, 900, 1500  # by make test, make slow, make torture
ORDERS = ("bhtd", "hbtd", "bthd", "(bh)td", "(hb)td", "tbhd")
WINDOWED = ("bwhtd", "bhwtd", "(bw)htd", "wbhtd", "(wb)htd", "(bwh)td")
NO_SOFTMAX = ("sigmoid", "exp over sum", "relu")


@dataclass(frozen=True)
class Spec:
    """What a layer is like."""

    B: int
    T: int
    H: int
    D: int
    W: int = 1  # windows of T tokens
    shared: int = 1  # heads that share keys
    projection: str = "linear"  # or fused, einsum, heads
    order: str = "bhtd"
    loop: str = ""  # over heads or texts
    product: str = "matmul"  # or sdpa, einsum
    scores: str = "bhts"  # the order of their axes, in an einsum
    weights: str = "softmax"  # or softmin, sigmoid, …
    keys_first: bool = False  # keys · queries, softmax over the axis before the last
    copies: bool = False
    twice: bool = False  # two products with the same weights
    declared: bool = True


def draw(seed: int) -> Spec:
    r = random.Random(seed)
    W = r.choice((1, 1, 1, 3))
    H = r.choice((1, 2, 3, 4, 5))
    loop = r.choice(("", "", "", "heads", "texts")) if W == 1 else ""
    order = r.choice(WINDOWED if W > 1 else ORDERS)
    is_einsum = order in ("bthd", "tbhd") and not loop
    product = "einsum" if is_einsum else r.choice(("matmul", "matmul", "sdpa", "einsum"))
    if product == "einsum" and ("(" in order or loop):
        product = "matmul"
    weights = r.choice(("softmax", "softmax", "softmax", "softmin", *NO_SOFTMAX)) if product != "sdpa" else "softmax"
    letters = "bhts" if W == 1 else "bwhts"
    return Spec(
        B=r.choice((1, 2, 3, 4)), T=r.choice((5, 7, 11)), H=H, D=r.choice((4, 6)), W=W,
        shared=2 if H == 4 and order == "bhtd" and not loop and product == "matmul" and r.random() < 0.4 else 1,
        projection=r.choice(("linear", "fused", "einsum", "heads")), order=order, loop=loop, product=product,
        scores="".join(r.sample(letters, len(letters))), weights=weights,
        keys_first=product == "matmul" and weights in ("softmax", "softmin") and r.random() < 0.3,
        copies=r.random() < 0.5, twice=product != "sdpa" and not loop and r.random() < 0.2, declared=r.random() < 0.5,
    )  # fmt: skip


class Attention(nn.Module):
    """The layer of a Spec."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.spec, E = spec, spec.H * spec.D
        if spec.declared:
            self.num_heads = spec.H
        match spec.projection:
            case "fused":
                self.qkv = nn.Linear(E, 3 * E)
            case "einsum":
                self.weight = nn.Parameter(torch.randn(3, E, spec.H, spec.D) * E**-0.5)
            case "heads":
                self.heads = nn.ModuleList(nn.ModuleList(nn.Linear(E, spec.D) for _ in range(spec.H)) for _ in range(3))
            case _:
                self.three = nn.ModuleList(nn.Linear(E, E) for _ in range(3))
        self.out = nn.Linear(E, E)

    def project(self, x: Tensor) -> list[Tensor]:
        """Queries, keys and values, (…, E)."""
        match self.spec.projection:
            case "fused":
                return list(self.qkv(x).chunk(3, -1))
            case "einsum":
                return [torch.einsum("...e,ehd->...hd", x, weight).flatten(-2) for weight in self.weight.unbind()]
            case "heads":
                return [torch.cat([head(x) for head in heads], -1) for heads in self.heads]
        return [one(x) for one in self.three]

    def by_heads(self, x: Tensor) -> list[Tensor]:
        """Queries and keys, (B · W, H, T, D), with one key for each query head."""
        s = self.spec
        q, k = (t.view(s.B * s.W, s.T, s.H, s.D).transpose(1, 2) for t in self.project(x)[:2])
        return [q, k[:, :: s.shared].repeat_interleave(s.shared, 1)]

    def truth(self, x: Tensor) -> Tensor:
        q, k = self.by_heads(x)
        return (q @ k.mT * self.spec.D**-0.5).softmax(-1)

    def normalised(self, scores: Tensor, axis: int) -> Tensor:
        match self.spec.weights:
            case "softmin":
                return F.softmin(-scores, dim=axis)
            case "sigmoid":
                return scores.sigmoid()
            case "relu":
                return scores.relu() / 7
            case "exp over sum":
                powers = scores.exp()
                return powers / powers.sum(axis, keepdim=True)
        return scores.softmax(axis)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """(…, T, D) each."""
        s = self.spec
        if s.product == "sdpa":
            return F.scaled_dot_product_attention(q, k, v)
        if s.keys_first:
            weights = self.normalised(k @ q.mT * s.D**-0.5, -2).mT
        else:
            weights = self.normalised(q @ k.mT * s.D**-0.5, -1)
        return weights @ v + weights @ k if s.twice else weights @ v

    def by_einsum(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """With the axes of the order, and scores in whatever order."""
        s = self.spec
        keys = s.order.replace("t", "s")
        weights = self.normalised(torch.einsum(f"{s.order},{keys}->{s.scores}", q, k) * s.D**-0.5, s.scores.index("s"))
        out = torch.einsum(f"{s.scores},{keys}->{s.order}", weights, v)
        return out + torch.einsum(f"{s.scores},{keys}->{s.order}", weights, k) if s.twice else out

    def forward(self, x: Tensor) -> Tensor:
        s = self.spec
        if s.loop == "texts":
            return self.out(torch.stack([self.one_text(one) for one in x]))
        q, k, v = self.project(x)
        if s.loop == "heads":
            parts = [[t[..., h * s.D : (h + 1) * s.D] for t in (q, k, v)] for h in range(s.H)]
            return self.out(torch.cat([self.attend(*part) for part in parts], -1))
        if s.shared > 1:
            return self.out(self.grouped(q, k, v))
        letters = s.order.replace("(", "").replace(")", "")
        sizes = {"b": s.B, "w": s.W, "t": s.T, "h": s.H, "d": s.D}
        start = "bwthd" if s.W > 1 else "bthd"
        cut = [t.view([sizes[a] for a in start]).permute([start.index(a) for a in letters]) for t in (q, k, v)]
        if s.copies:
            cut = [t.contiguous() * 1.0 for t in cut]
        merged = s.order.index(")") - 1 if "(" in s.order else 1
        flat = [t.flatten(0, merged - 1) for t in cut]
        out = self.by_einsum(*flat) if s.product == "einsum" else self.attend(*flat)
        out = out.unflatten(0, [sizes[a] for a in letters[:merged]]) if merged > 1 else out
        return self.out(out.permute([letters.index(a) for a in start]).reshape(x.shape))

    def one_text(self, x: Tensor) -> Tensor:
        s = self.spec
        q, k, v = (t.view(s.T, s.H, s.D).transpose(0, 1) for t in self.project(x))
        return self.attend(q, k, v).transpose(0, 1).flatten(1)

    def grouped(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        s = self.spec
        q = q.view(s.B, s.T, s.H // s.shared, s.shared, s.D).permute(0, 2, 3, 1, 4)
        k, v = (t.view(s.B, s.T, s.H, s.D)[:, :, :: s.shared].transpose(1, 2)[:, :, None] for t in (k, v))
        return self.attend(q, k, v).permute(0, 3, 1, 2, 4).flatten(2)


class TwoTowers(nn.Module):
    """The same kind of layer for two inputs of the same length, after attention that is always seen."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.first = nn.MultiheadAttention(spec.H * spec.D, 1, batch_first=True)
        self.left, self.right = Attention(spec), Attention(spec)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        x = x + self.first(x, x, x, need_weights=False)[0]
        return self.left(x) + self.right(y)


def judge(seed: int) -> str:
    """Watch a random layer; what became of it, or an AssertionError."""
    spec = draw(seed)
    torch.manual_seed(seed)
    model = TwoTowers(spec).eval()
    x, y = (torch.randn(spec.B, spec.W * spec.T, spec.H * spec.D) for _ in range(2))
    with torch.no_grad(), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        expected = model(x, y)
        with regard.watch(model) as seen:
            out = model(x, y)
        assert torch.equal(out, expected), spec
        hidden = (x + model.first(x, x, x, need_weights=False)[0]).double()
        truths = {"left": model.double().left.truth(hidden), "right": model.right.truth(y.double())}
    texts, verdicts = " ".join(str(one.message) for one in said), set()
    for name, truth in truths.items():
        layers = [layer for layer in seen if layer.name.partition(".")[0] == name]
        if not layers or spec.twice:
            assert f"{name} " in texts or f"{name}," in texts, f"{spec}: {name} is missing without a word"
            verdicts.add("warned")
        for layer in layers:
            marks = [mark for mark in layer.marks if mark.startswith(("heads", "weights"))]
            if marks:
                verdicts.add("marked")
                continue
            assert spec.weights not in NO_SOFTMAX, f"{spec}: {spec.weights} is reported as a softmax"
            assert tuple(layer.record.sizes) == tuple(truth.shape), f"{spec}: {layer.record.sizes}"
            torch.testing.assert_close(layer.weights().double(), truth, atol=1e-5, rtol=1e-4, msg=str(spec))
            entropy = -torch.xlogy(truth, truth).sum(-1)
            torch.testing.assert_close(layer.entropy.double(), entropy, atol=1e-4, rtol=1e-4, msg=str(spec))
            torch.testing.assert_close(layer.received.double(), truth.sum(2), atol=1e-4, rtol=1e-4, msg=str(spec))
            verdicts.add("exact")
    return ", ".join(sorted(verdicts))


def test_random_layers_are_exact_marked_or_named():
    verdicts = [judge(seed) for seed in range(QUICK)]
    exact = sum(verdict == "exact" for verdict in verdicts)
    assert exact > 0.5 * QUICK, f"only {exact} of {QUICK} are exact"


@pytest.mark.slow
@pytest.mark.parametrize(
    "hundred",
    [
        *range(QUICK // 100 + 1, SLOW // 100),
        *(pytest.param(hundred, marks=pytest.mark.torture) for hundred in range(SLOW // 100, MANY // 100)),
    ],
)
def test_many_random_layers_are_exact_marked_or_named(hundred):
    for seed in range(100 * hundred, 100 * (hundred + 1)):
        judge(seed)


class Written(nn.Module):
    """Attention of four heads by a function of the layer and x."""

    num_heads = 4

    def __init__(self, attend, width=16):
        super().__init__()
        self.q, self.k, self.v, self.attend = nn.Linear(16, 16), nn.Linear(16, width), nn.Linear(16, width), attend

    def heads(self, t):
        return t.view(*t.shape[:2], 4, 4).transpose(1, 2)

    def forward(self, x):
        return self.attend(self, x)


def in_groups(layer, x, groups):
    q, k, v = (layer.heads(one(x)) for one in (layer.q, layer.k, layer.v))
    return torch.cat([F.scaled_dot_product_attention(q[:, g], k[:, g], v[:, g]) for g in groups], 1)


@pytest.mark.parametrize("groups", [(slice(0, 2), slice(2, 4)), (slice(0, 4, 2), slice(1, 4, 2))])
@pytest.mark.parametrize("texts", [1, 2])
@torch.no_grad()
def test_some_heads_of_a_module_at_a_time_are_marked_or_joined_in_their_order(groups, texts):
    model, x = Written(lambda layer, x: in_groups(layer, x, groups)), torch.randn(texts, 7, 16)
    with regard.watch(model) as seen:
        model(x)
    q, k = (model.heads(one(x)) for one in (model.q, model.k))
    if len(seen) == 1:
        torch.testing.assert_close(seen[0].weights(), (q @ k.mT / 2).softmax(-1))
    else:
        assert all(layer.marks == ("heads assumed: 2 of the 4 heads that its module has",) for layer in seen)


@pytest.mark.parametrize("texts", [1, 2, 3])
@pytest.mark.parametrize("declared", [True, False])
@torch.no_grad()
def test_groups_of_several_sizes_are_one_layer_or_marked(declared, texts):
    model = Written(lambda layer, x: in_groups(layer, x, (slice(0, 1), slice(1, 2), slice(2, 4))))
    model.num_heads, x = 4 if declared else None, torch.randn(texts, 7, 16)
    with regard.watch(model) as seen:
        model(x)
    q, k = (model.heads(one(x)) for one in (model.q, model.k))
    if len(seen) == 1:
        torch.testing.assert_close(seen[0].weights(), (q @ k.mT / 2).softmax(-1))
    else:
        assert declared
        assert all(layer.marks == ("heads assumed: 2 of the 4 heads that its module has",) for layer in seen)


@torch.no_grad()
def test_one_head_and_several_of_a_module_are_marked_as_some_of_its_heads():
    model = Written(lambda layer, x: in_groups(layer, x, (slice(0, 1), slice(1, 4))))
    with regard.watch(model) as seen:
        model(torch.randn(2, 7, 16))
    assert sorted(layer.record.sizes[1] for layer in seen) == [1, 3]
    assert all(mark.startswith("heads assumed: ") for layer in seen for mark in layer.marks)
    assert all(layer.marks for layer in seen)


ONE_AXIS = {
    "queries of all heads": lambda layer, x: F.scaled_dot_product_attention(
        layer.q(x).view(2, 28, 4), layer.k(x), layer.v(x)
    ),
    "by hand": lambda layer, x: (layer.heads(layer.q(x)).reshape(2, 28, 4) @ layer.k(x).mT).softmax(-1) @ layer.v(x),
}


@pytest.mark.parametrize("kind", ONE_AXIS)
@torch.no_grad()
def test_heads_and_queries_in_one_axis_are_marked_or_exact_and_never_break_the_model(kind):
    model, x = Written(ONE_AXIS[kind], width=4), torch.randn(2, 7, 16)
    expected = model(x)
    layer = next(one for one in model.modules() if isinstance(getattr(one, "q", None), torch.nn.Linear))
    right = (layer.heads(layer.q(x)) @ layer.k(x)[:, None].mT).softmax(-1)  # (B, H, T, S)
    with warnings.catch_warnings(), suppress(ValueError):  # "made no attention that can be seen", at the end
        warnings.simplefilter("ignore")
        with regard.watch(model) as seen:
            out = model(x)
        for one in seen:
            if not one.marks:
                torch.testing.assert_close(torch.stack([head.weights() for head in one], 1), right)
    assert torch.equal(out, expected)

"""One model that is watched: its layers are numbered, leaves make no attention, and some is none between tokens."""

import importlib
import inspect
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import _get_current_function_mode_stack

import regard
from heads import models
from heads.models import ids
from helpers import Textbook
from regard.heads.inputs.model_inputs import InputTracker
from regard.heads.intercept.intercept import intercept
from regard.heads.intercept.paths import FunctionMode
from regard.heads.intercept.watched_model import LEAVES, NAMES, WatchedModel, is_leaf


def test_layers_are_numbered_by_module_and_by_how_often_it_ran():
    model = regard.GPT.from_pretrained("tiny")
    with intercept(model, lambda *_: None) as forwards:
        model.blocks[1].attention(model.token_embedding(ids()))  # a part by itself
        model(ids())
    names = [f"blocks.{i}.attention" for i in (1, 0, 2, 3, 4, 5)]
    assert forwards.layers == {(name, 0): number for number, name in enumerate(names)}


def test_a_module_that_runs_several_times_is_as_many_layers():
    model = models.Layers(models.textbook)
    model.layers[1] = model.layers[0]
    with intercept(model, lambda *_: None) as forwards, regard.watch(model) as seen:
        model(models.random_x())
    assert list(forwards.layers) == [("layers.0", 0), ("layers.0", 1)]
    assert len(seen) == 2


def test_wrappers_of_torch_are_left_out_of_names():
    inner = nn.Linear(3, 3)
    wrapped = nn.Module()
    wrapped._orig_mod = inner
    model = nn.ModuleDict({"layer": wrapped})
    watched = WatchedModel(model, InputTracker(None, None))
    assert watched.names[id(inner)] == (inner, "layer")
    assert not watched.needs_each_step
    assert not watched.needs_calls


class InPieces(nn.Module):
    """The first token attends to all, then the others do, as attention in blocks is written."""

    num_heads = 1

    def __init__(self, fused, parts):
        super().__init__()
        self.fused, self.parts = fused, parts

    def attend(self, q, k):
        return F.scaled_dot_product_attention(q, k, k) if self.fused else (q @ k.mT).softmax(-1) @ k

    def forward(self, x):
        x = x[:, None]
        return torch.cat([self.attend(x[:, :, rows], x) for rows in self.parts], 2)[:, 0]


@pytest.mark.parametrize("fused", [True, False])
def test_pieces_of_one_attention_are_neither_layers_nor_can_they_be_cut(fused):
    whole, x = models.textbook(), models.random_x()
    model = nn.Sequential(whole, InPieces(fused, [slice(1), slice(1, None)]), whole)
    said = "the attention in 1 is not reported: it is computed in pieces"
    with pytest.warns(UserWarning, match=said), regard.watch(model) as seen:
        model(x)
    assert [layer.name for layer in seen] == ["0", "0"]
    with pytest.raises(ValueError, match="cannot cut the attention in 1: it is"), regard.cut(model, (1, 0)):
        model(x)
    with pytest.warns(UserWarning, match=said), regard.cut(model, (0, 0)), intercept(model, editor=None) as forwards:
        model(x)
    assert list(forwards.layers) == [("0", 0), ("0", 1)]


@pytest.mark.parametrize("fused", [True, False])
def test_some_rows_alone_are_a_layer_that_can_be_cut(fused):
    whole, x = models.textbook(), models.random_x()
    model = nn.Sequential(whole, InPieces(fused, [slice(1)]), whole)
    with regard.cut(model, (1, 0)), regard.watch(model, values=True) as seen:
        model(x)
    assert [layer.name for layer in seen] == ["0", "1", "0"]
    assert seen[0].record.context().any()
    assert not seen[1].record.context().any()


class Mixer(nn.Linear):
    """A subclass may do anything."""

    def forward(self, x):
        return F.scaled_dot_product_attention(x, x, x)


def test_modules_of_torch_without_attention_are_leaves():
    assert all(is_leaf(module) for module in (nn.Linear(3, 5), nn.LayerNorm(3), nn.Dropout(0.1), nn.GELU()))
    assert all(kind.__module__.startswith("torch.nn") for kind in LEAVES)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_leaf_of_transformers_is_there_and_its_code_names_neither_softmax_nor_attention(name):
    pytest.importorskip("transformers")
    module, _, kind = name.rpartition(".")
    source = inspect.getsource(getattr(importlib.import_module(module), kind))
    assert not re.search(r"softmax|attention|matmul|bmm|einsum|@ ", source)


def test_the_modules_around_attention_in_gpt2_and_llama_are_leaves():
    transformers = pytest.importorskip("transformers")
    sizes = {"num_attention_heads": 2, "num_hidden_layers": 1, "vocab_size": 31, "hidden_size": 8}
    gpt2 = transformers.GPT2Model(transformers.GPT2Config(n_embd=8, n_head=2, n_layer=1, vocab_size=31))
    llama = transformers.LlamaModel(transformers.LlamaConfig(intermediate_size=7, **sizes))
    others = {type(m).__name__ for model in (gpt2, llama) for m in model.modules() if not is_leaf(m)}
    assert others == {
        *("GPT2Model", "ModuleList", "GPT2Block", "GPT2Attention", "GPT2MLP"),
        *("LlamaModel", "LlamaDecoderLayer", "LlamaAttention", "LlamaMLP", "LlamaRotaryEmbedding"),
    }


def test_what_may_attend_is_no_leaf():
    modules = (Mixer(3, 5), Textbook(8, 8, 16, 0.0, 2), nn.Sequential(nn.Linear(3, 5)), nn.Softmax(-1))
    assert not any(is_leaf(module) for module in modules)


def test_a_forward_that_was_replaced_makes_it_no_leaf():
    module = nn.Linear(3, 5)
    module.forward = lambda x: F.scaled_dot_product_attention(x, x, x)
    assert not is_leaf(module)


class Model(nn.Module):
    """A leaf that attends in a hook, or says which modes are on."""

    def __init__(self):
        super().__init__()
        self.leaf, self.attention = nn.Linear(8, 8), Textbook(8, 8, 16, 0.0, 2)

    def forward(self, x):
        return self.attention(self.leaf(x))


def modes_in(model):
    modes, real = [], F.linear

    def linear(*args):
        modes.append([type(mode) for mode in _get_current_function_mode_stack()])
        return real(*args)

    torch.nn.functional.linear = linear
    try:
        with regard.watch(model):
            model(torch.randn(1, 5, 8))
    finally:
        torch.nn.functional.linear = real
    return modes[0]


def test_a_leaf_runs_without_the_mode():
    assert modes_in(Model()) == []


def test_attention_in_a_hook_of_a_leaf_is_seen():
    model, attention = Model(), Textbook(8, 8, 16, 0.0, 2)
    model.leaf.register_forward_hook(lambda module, args, out: attention(out))
    assert modes_in(model) == [FunctionMode]
    with regard.watch(model) as seen:
        model(torch.randn(1, 5, 8))
    assert seen.layers == ["", "attention"]


class Counting(nn.Module):
    """Counts how often its leaf runs, by a function that the leaf calls."""

    def __init__(self):
        super().__init__()
        self.leaf = nn.Embedding(7, 5)

    def forward(self, x):
        return self.leaf(x)


def test_a_leaf_that_fails_runs_once_and_its_error_is_raised(monkeypatch):
    runs, model = [], Counting()

    def embedding(*args, **kwargs):
        runs.append(args)
        raise RuntimeError("out of memory")

    monkeypatch.setattr(F, "embedding", embedding)
    with pytest.raises(RuntimeError, match="out of memory"), regard.watch(model):
        model(torch.tensor([[1, 2, 3]]))
    assert len(runs) == 1


def test_an_error_of_a_linear_layer_is_explained_though_the_mode_is_off():
    model = Model()
    message = "x has width 9 but this linear layer takes 8"
    with pytest.raises(RuntimeError, match=message), regard.watch(model):
        model(torch.randn(1, 5, 9))


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


def test_heads_that_are_computed_one_by_one_are_heads_of_one_layer():
    class Windows(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Cascade()

        def forward(self, x):
            return self.inner(x.unflatten(1, (H, T)).flatten(0, 1))

    x = torch.randn(B, H * T, E)
    heads = torch.stack(x.reshape(B * H, T, E).chunk(H, -1), 1)
    (weights,) = weights_by(Windows(), x)
    torch.testing.assert_close(weights, (heads @ heads.mT).softmax(-1))


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

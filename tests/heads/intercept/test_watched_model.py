"""One model that is watched or cut: its layers have the numbers of a report."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import regard
from heads import models
from heads.models import ids
from regard.heads.inputs.model_inputs import InputTracker
from regard.heads.intercept.intercept import intercept
from regard.heads.intercept.watched_model import WatchedModel


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

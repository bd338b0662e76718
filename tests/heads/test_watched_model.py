"""One model that is watched or cut: its layers have the numbers of a report."""

from torch import nn

import regard
from heads import models
from heads.models import ids
from regard.heads.intercept import intercept
from regard.heads.model_inputs import InputTracker
from regard.heads.watched_model import WatchedModel


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

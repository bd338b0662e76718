"""Which submodule a parameter or buffer belongs to."""

import torch
from torch import nn

from regard.traces.owners import Owned, Owners


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(3, 5), nn.LayerNorm(5)])
        self.register_buffer("mask", torch.ones(2))

    def look_for(self, owners, tensor):
        return owners.find(tensor)


def test_a_module_given_knows_its_parameters_and_buffers():
    outer = Outer()
    owners = Owners(outer)
    assert owners.find(outer.blocks[0].weight) == (outer.blocks[0], "blocks.0", "weight")
    assert owners.find(outer.blocks[1].bias) == (outer.blocks[1], "blocks.1", "bias")
    assert owners.find(outer.mask) == (outer, "", "mask")
    assert owners.find(torch.ones(2)) is None


def test_a_running_module_is_found_among_the_callers():
    outer, owners = Outer(), Owners()
    assert owners.find(outer.blocks[0].weight) is None
    assert outer.look_for(owners, outer.blocks[0].weight) == (outer.blocks[0], "blocks.0", "weight")


def test_the_parents_name_replaces_the_empty_one_of_the_module_itself():
    outer = Outer()
    owners = Owners(outer.blocks[0])
    assert owners.find(outer.blocks[0].weight).path == ""
    assert outer.look_for(owners, outer.blocks[0].weight).path == "blocks.0"


def test_a_path_is_shortened_to_its_last_word():
    names = {"blocks.0.attention.W_query": "W_query", "to_out.0": "to_out.0", "3": "3", "": ""}
    assert {path: Owned(nn.Identity(), path, "weight").short_path for path in names} == names


def test_a_module_stands_for_the_function_of_its_name():
    assert Owned(nn.LayerNorm(2), "norm", "weight").runs("layer_norm")
    assert not Owned(nn.Embedding(2, 3), "table", "weight").runs("linear")
    assert not Owned(nn.Linear(2, 3), "", "weight").runs("linear")  # without a name there is nothing to call it by

import sys
import types
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

from regard.school.check.learner_code.construction import (
    Config,
    argument_of,
    build,
    call_with,
    parameters_of,
    returned_tensors,
    tensor_names,
)

SOURCE = """
from dataclasses import dataclass
from types import SimpleNamespace
from typing import NamedTuple
from torch import nn

@dataclass(frozen=True)
class Args:
    dim: int = 64
    n_heads: int = 8
    eps: float = 1e-5
    @property
    def head_dim(self):
        return self.dim // self.n_heads

class Needed(NamedTuple):
    width: int

NESTED = SimpleNamespace(model=SimpleNamespace(width=64, heads=8), lr=0.1)

class Keeps(nn.Module):
    def __init__(self, config: "Args"):
        super().__init__()
        self.config = config

class KeepsNeeded(nn.Module):
    def __init__(self, c: Needed):
        super().__init__()
        self.config = c

class KeepsNested(nn.Module):
    def __init__(self, cfg=NESTED):
        super().__init__()
        self.config = cfg

class KeepsByName(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.config = args

class Plain(nn.Module):
    def __init__(self, d_model, **options):
        super().__init__()
        self.options = options
"""


@pytest.fixture(scope="module")
def learner():
    module = types.ModuleType("a_learners_file")
    sys.modules[module.__name__] = module
    exec(SOURCE, vars(module))
    yield module
    del sys.modules[module.__name__]


def fields(one):
    return {field["name"]: (field["required"], field["default"]) for field in parameters_of(one)[0]["fields"]}


def test_a_configuration_of_the_file_is_known_by_its_fields(learner):
    assert fields(learner.Keeps) == {"dim": (False, 64), "n_heads": (False, 8), "eps": (False, 1e-5)}
    assert fields(learner.KeepsNeeded) == {"width": (True, None)}
    assert fields(learner.KeepsByName) == fields(learner.Keeps)
    assert "fields" not in parameters_of(learner.Plain)[0]


def test_it_is_made_as_the_file_makes_it_with_our_values_in_it(learner):
    made = build(learner.Keeps, {"config": {"dim": 21, "n_heads": 3}}).config
    assert made == learner.Args(21, 3)
    assert made.head_dim == 7
    assert build(learner.KeepsNeeded, {"c": {"width": 21}}).config == learner.Needed(21)


def test_a_nested_configuration_keeps_what_is_not_said(learner):
    (described,) = parameters_of(learner.KeepsNested)
    assert [one["name"] for one in described["fields"][0]["fields"]] == ["width", "heads"]
    made = build(learner.KeepsNested, {"cfg": {"model": {"width": 21}}}).config
    assert (made.model.width, made.model.heads, made.lr) == (21, 8, 0.1)
    assert learner.NESTED.model.width == 64


def test_a_configuration_is_read_by_key_and_by_attribute():
    config = Config({"n_embd": 7})
    assert (config.n_embd, config["n_embd"], config.get("other", 3)) == (7, 7, 3)
    assert not hasattr(config, "other")


def test_what_is_built_already_is_copied():
    layer = nn.Linear(3, 5)
    copied = build(layer, None)
    assert copied is not layer
    assert torch.equal(copied.weight, layer.weight)


def test_a_call_may_hold_tuples_dicts_and_functions():
    call = {"args": ["x", ["a", "b"]], "kwargs": {"weights": {"dict": {"q": "w"}}, "to_k": {"linear": "w"}}}
    assert tensor_names(call) == ["x", "a", "b", "w", "w"]
    tensors = {"x": torch.ones(2, 3), "a": 1, "b": 2, "w": torch.full((3, 5), 2.0)}

    def called(x, pair, weights, to_k):
        return pair, weights["q"] is tensors["w"], to_k(x)

    pair, is_same, keys = call_with(called, call, tensors, None)
    assert (pair, is_same) == ((1, 2), True)
    assert keys.equal(torch.full((2, 5), 6.0))


def test_the_tensors_of_every_kind_of_result_are_seen():
    @dataclass
    class Output:
        out: torch.Tensor
        name: str = "out"

    out = torch.ones(2)
    assert all(len(returned_tensors(one)) == 1 for one in (out, [out], {"out": out}, Output(out), np.ones(2)))
    assert returned_tensors((None, "text", nn.Linear(2, 2))) == []


def test_an_argument_is_a_copy_in_the_dtype_of_the_job():
    x = torch.ones(3, dtype=torch.float64)
    assert argument_of(x, {"dtype": "float32"}).dtype == torch.float32
    assert isinstance(argument_of(x, {"numpy": True}), np.ndarray)
    assert argument_of(x, {}) is not x


PARSED = """import argparse
from torch import nn

def get_args(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--dim", type=int, default=32)
    return parser.parse_args(argv)

class Keeps(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.config = args
"""


def test_a_command_line_has_its_defaults_whatever_ours_says(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["regard", "check", "--unknown"])
    module = types.ModuleType("a_parsers_file")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(PARSED, vars(module))
    assert fields(module.Keeps) == {"dim": (False, 32)}
    assert sys.argv[2] == "--unknown"


def test_numbers_in_lists_go_in_and_come_out_as_one_tensor():
    x = torch.randn(2, 3, 5, dtype=torch.float64)
    assert argument_of(x, {"lists": True}) == x.tolist()
    ways = (
        x.tolist(),
        [[list(row) for row in text] for text in x],
        [[list(row) for row in text] for text in x.numpy()],
    )
    for way in ways:
        (back,) = returned_tensors(way)
        torch.testing.assert_close(back, x, rtol=0, atol=0)
    assert [tuple(t.shape) for t in returned_tensors([x, x])] == [(2, 3, 5), (2, 3, 5)]
    assert returned_tensors([[1.0, 2.0], [3.0]]) != []
    assert returned_tensors(["text", 1.0]) == []

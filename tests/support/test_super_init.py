"""A module that forgot super().__init__() is named wherever it meets regard, with the file and the line."""

import copy
import inspect
import pickle
import re
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import regard
from regard.support.super_init import explain_missing_init

REMEDY = r"; make super\(\).__init__\(\) the first line of __init__$"
NEVER = r"never called super\(\).__init__\(\), so torch cannot keep its layers" + REMEDY


class Forgetful(nn.Module):
    def __init__(self):
        self.width = 3

    def forward(self, x):
        return x


class ForgetfulWithLayer(nn.Module):
    def __init__(self):
        self.W_query = nn.Linear(3, 2)


class Late(nn.Module):
    def __init__(self):
        self.W_query = nn.Linear(3, 2)
        super().__init__()


def here(cls, code):
    """Where this file has that line of the class."""
    lines = Path(__file__).read_text().splitlines()
    start = lines.index(f"class {cls.__name__}(nn.Module):")
    number = next(i for i in range(start, len(lines)) if code in lines[i]) + 1
    return rf"\([^()]*test_super_init\.py:{number}\)"


HANDED_IN = {
    "trace": lambda module: regard.trace(module, torch.ones(2, 5, 3)),
    "watch": lambda module: regard.watch(module).__enter__(),
    "adopt": regard.adopt,
    "probe": regard.probe,
    "explain": lambda module: regard.explain(module, torch.ones(2, 5, 3)),
    "count_parameters": regard.count_parameters,
}


@pytest.mark.parametrize("inside", [False, True], ids=["the module", "a module inside it"])
@pytest.mark.parametrize("name", HANDED_IN)
def test_it_is_named_by_whatever_takes_a_module(name, inside):
    module = nn.Sequential(nn.ReLU(), nn.Sequential(Forgetful())) if inside else Forgetful()
    with pytest.raises(ValueError, match=rf"^Forgetful.__init__ {here(Forgetful, 'def __init__')} {NEVER}"):
        HANDED_IN[name](module)


def test_a_cache_names_it_too(without_shape_checks):
    class Mine(regard.MultiHeadAttention):
        def __init__(self):
            self.head_dim = 5

    with pytest.raises(ValueError, match=rf"^Mine.__init__ .* {NEVER}"):
        regard.Cache.of(Mine())


BLOCKS = {"trace": regard.trace, "watch": lambda: regard.watch(nn.MultiheadAttention(6, 2))}


@pytest.mark.parametrize("block", BLOCKS)
def test_it_is_named_where_the_layer_is_built_inside_a_block(block):
    place = here(ForgetfulWithLayer, "def __init__")
    with pytest.raises(ValueError, match=rf"^ForgetfulWithLayer.__init__ {place} {NEVER}"), BLOCKS[block]():
        ForgetfulWithLayer()


@pytest.mark.parametrize("run", [regard.trace, regard.explain])
def test_it_is_named_where_a_module_that_runs_builds_the_layer(run):
    class Builder(nn.Module):
        def forward(self, x):
            return ForgetfulWithLayer()(x)

    with pytest.raises(ValueError, match=rf"^ForgetfulWithLayer.__init__ .* {NEVER}"):
        run(Builder(), torch.ones(2, 5, 3))


@pytest.mark.parametrize("block", BLOCKS)
def test_it_is_named_where_the_module_is_used_inside_a_block(block):
    module = Forgetful()
    with pytest.raises(ValueError, match=rf"^Forgetful.__init__ .* {NEVER}"), BLOCKS[block]():
        module(torch.ones(3))


@pytest.mark.parametrize(
    "use",
    [
        lambda self: self.register_buffer("mask", torch.ones(3)),
        lambda self: self.register_parameter("weight", nn.Parameter(torch.ones(3))),
        lambda self: setattr(self, "weight", nn.Parameter(torch.ones(3))),
        lambda self: self.add_module("W_query", nn.Linear(3, 2)),
        lambda self: self.eval(),
        lambda self: self.to(torch.float64),
        lambda self: self.state_dict(),
        lambda self: self.register_forward_hook(print),
    ],
    ids=["buffer", "parameter", "attribute", "module", "eval", "to", "state_dict", "hook"],
)
def test_every_error_that_torch_raises_for_it_is_recognised(use):
    with pytest.raises(AttributeError) as caught:
        use(Forgetful())
    assert re.match(rf"Forgetful.__init__ .* {NEVER}", str(explain_missing_init(caught.value)))


def test_a_call_that_comes_too_late_is_told_from_none():
    place = here(Late, "self.W_query")
    message = (
        rf"^Late.__init__ {place} uses the module before super\(\).__init__\(\) was called, "
        rf"so torch cannot keep its layers{REMEDY}"
    )
    with pytest.raises(ValueError, match=message), regard.trace():
        Late()


def test_of_several_classes_the_one_without_the_call_is_named():
    class Careful(Forgetful):
        def __init__(self):
            super().__init__()
            self.depth = 5

    with pytest.raises(ValueError, match=rf"^Forgetful.__init__ {here(Forgetful, 'def __init__')} {NEVER}"):
        regard.trace(Careful(), torch.ones(3))


def test_a_module_made_without_any_init_is_named_by_its_class():
    class Bare(nn.Module):
        pass

    assert re.match(rf"Bare.__init__ {NEVER}", str(explain_missing_init(Bare.__new__(Bare))))


OURS = [
    regard.MultiHeadAttention,
    regard.GPT,
    regard.ladder.SelfAttention,
    regard.ladder.CausalAttention,
    regard.ladder.MultiHeadAttention,
    regard.ladder.MultiHeadAttentionWrapper,
]


@pytest.mark.parametrize("ours", OURS, ids=lambda cls: f"{cls.__module__}.{cls.__name__}")
def test_a_subclass_of_a_layer_of_regard_names_it_when_it_is_constructed(ours):
    class WithLayer(ours):
        def __init__(self):
            self.gate = nn.Linear(3, 2)

    class WithNumber(ours):
        def __init__(self):
            self.width = 3

    class Further(WithNumber):
        def __init__(self):
            super().__init__()
            self.depth = 5

    for cls, name in ((WithLayer, "WithLayer"), (WithNumber, "WithNumber"), (Further, "WithNumber")):
        with pytest.raises(ValueError, match=rf"^{name}.__init__ .*test_super_init.py:\d+\) {NEVER}"):
            cls()


def test_a_subclass_that_calls_it_too_late_is_named_with_the_line():
    class LateLayer(regard.MultiHeadAttention):
        def __init__(self):
            self.gate = nn.Linear(3, 2)
            super().__init__(6, 6, 5, 0.0, 2)

    with pytest.raises(ValueError, match=r"^LateLayer.__init__ .*:\d+\) uses the module before super\(\).__init__\(\)"):
        LateLayer()


class Gated(regard.ladder.CausalAttention):
    def __init__(self, width, dropout=0.0):
        super().__init__(width, 2, 7, dropout)
        self.gate = nn.Linear(2, 2)


def test_a_sound_subclass_is_what_it_was():
    layer, x = Gated(3, dropout=0.0), torch.randn(2, 5, 3)
    assert list(inspect.signature(Gated).parameters) == ["width", "dropout"]
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        torch.testing.assert_close(twin(x), layer(x), rtol=0, atol=0)
    with torch.device("meta"):
        assert Gated(3).gate.weight.is_meta


def test_an_error_of_a_sound_subclass_is_left_as_it_is():
    class Misspelled(regard.ladder.SelfAttention):
        def __init__(self):
            super().__init__(3, 2)
            self.gate = self.W_qeury

    with pytest.raises(AttributeError, match="'Misspelled' object has no attribute 'W_qeury'"):
        Misspelled()


def test_nn_module_init_called_by_the_outermost_class_is_enough():
    class Part(regard.ladder.SelfAttention):
        def __init__(self):
            self.width = 3

    class Whole(Part):
        def __init__(self):
            super().__init__()
            nn.Module.__init__(self)

    assert Whole().state_dict() == {}


def test_code_that_is_in_no_file_is_named_without_a_place():
    names = {"nn": nn}
    exec("class Typed(nn.Module):\n    def __init__(self):\n        self.width = 3\n", names)
    with pytest.raises(ValueError, match=rf"^Typed.__init__ {NEVER}"):
        regard.trace(names["Typed"](), torch.ones(3))


def test_a_file_below_the_current_folder_is_named_from_there(tmp_path, monkeypatch):
    (tmp_path / "homework.py").write_text(
        "from torch import nn\n\n\nclass Mine(nn.Module):\n    def __init__(self):\n        self.width = 3\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    import homework

    with pytest.raises(ValueError, match=rf"^Mine.__init__ \(homework.py:5\) {NEVER}"):
        regard.trace(homework.Mine(), torch.ones(3))
    del sys.modules["homework"]


def test_modules_that_contain_each_other_are_searched_once():
    a, b = nn.Module(), nn.Module()
    a.b, b.a = b, a
    assert explain_missing_init(a) is None


@pytest.mark.parametrize(
    "error", [AttributeError("'Mine' object has no attribute 'W_query'"), ValueError("_modules"), KeyError("training")]
)
def test_any_other_error_is_left_as_it_is(error):
    with pytest.raises(type(error)) as caught, regard.trace():
        raise error
    assert caught.value is error


def test_an_attribute_that_a_sound_module_lacks_is_not_explained():
    with pytest.raises(AttributeError, match="_modules") as caught:
        raise AttributeError("'Mine' object has no attribute '_modules'")
    assert explain_missing_init(caught.value) is None

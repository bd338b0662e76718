"""t.diff(other) aligns steps by meaning: correct layers are equal, and a mistake is found where it was made."""

import pytest
import torch

import regard
from traces.homework import CORRECT, D_IN, WRONG, B, D, E, H, Homework, T, reference
from regard import step, trace


def run(function, x):
    return trace(Homework(function, reference().state_dict()).eval(), x)


@pytest.fixture(params=["ladder", "shipped"])
def expected(request):
    """The trace of a correct layer: the ladder's, or the one to ship."""
    layer = reference()
    if request.param == "shipped":
        shipped = regard.MultiHeadAttention(D_IN, E, 13, 0.0, H)
        shipped.load_state_dict(layer.state_dict())
        layer = shipped
    return trace(layer.eval(), random_x())


def random_x():
    return torch.randn(B, T, D_IN, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("function", CORRECT, ids=lambda f: f.__name__)
def test_a_correct_layer_is_equal_however_it_is_written(function, expected):
    homework = run(function, random_x())
    assert homework.diff(expected) is None
    assert expected.diff(homework) is None


@pytest.mark.parametrize(("function", "name", "meaning"), WRONG, ids=lambda f: getattr(f, "__name__", None))
def test_a_mistake_is_found_at_its_step(function, name, meaning, expected):
    difference = run(function, random_x()).diff(expected)
    print(difference)
    assert difference is not None
    assert (difference.name, difference.meaning) == (name, meaning)

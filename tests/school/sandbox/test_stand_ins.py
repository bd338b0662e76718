import math

import pytest
import torch

from regard.school.sandbox.stand_ins import STAND_IN, Quiet, StandIn, Unavailable, stand_in

EINOPS = stand_in("einops, which is not installed here")


def test_a_class_may_mention_it():
    class A:
        size: EINOPS.Float[int, "3"] | None = EINOPS.sizes[7].small

    assert isinstance(A.size, StandIn)
    assert not hasattr(EINOPS, "__torch_function__")


@pytest.mark.parametrize(
    "use",
    [
        lambda one: one(3),
        lambda one: one.a.b(3),
        lambda one: one + 1,
        lambda one: 2 * one,
        lambda one: list(one),
        lambda one: bool(one),
        lambda one: one > 3,
        lambda one: range(one),
        lambda one: math.sqrt(one),
        lambda one: isinstance(3, one),
        lambda one: type("A", (), {}) if False else __import__("types").new_class("A", (one,)),
        lambda one: one.__enter__(),
        lambda one: f"{one:3}",
    ],
)
def test_what_needs_its_value_is_told_what_is_missing(use):
    with pytest.raises(Unavailable, match="einops, which is not installed here"):
        use(EINOPS)


def test_an_error_of_torch_says_what_is_missing_too():
    with pytest.raises(TypeError) as raised:
        torch.nn.Linear(3, EINOPS)
    assert STAND_IN.search(str(raised.value))[1] == "einops, which is not installed here"


def test_the_shell_of_a_notebook_does_nothing():
    shell = Quiet()
    assert isinstance(shell().run_line_magic("matplotlib", "inline"), Quiet)
    assert not hasattr(shell, "__len__")

"""What a step is, whatever it is called."""

import torch

from regard import step, trace
from regard.traces.meanings import meanings
from traces.homework import Homework, named_with_a_wrong_scale, reference

T, D = 7, 5


def of(t):
    return [one.name for one in meanings(t.steps, t.has_names)]


def test_names_of_ones_own_are_understood_by_what_was_done():
    q, k, v = torch.randn(3, T, D)
    future = torch.ones(T, T).triu(1).bool()
    with trace() as t:
        energy = step("energy", q @ k.mT)
        hidden = step("hide", energy.masked_fill(future, -torch.inf))
        smaller = step("smaller", hidden / D**0.5)
        attention = step("attention", smaller.softmax(-1))
        step("mixture", attention @ v)
    assert of(t) == ["scores", "mask", "scaled", "weights", "context"]


def test_several_operations_in_one_step_are_all_in_it():
    q, k = torch.randn(2, T, D)
    with trace() as t:
        energy = step("energy", q @ k.mT / D**0.5)
        step("attention", energy.softmax(-1))
    energy = meanings(t.steps, named=True)[0]
    assert energy.name == "scaled"
    assert energy.contains == energy.own == {"scores", "scaled"}


def test_a_product_whose_text_is_too_long_to_show_is_known_by_its_softmax():
    layer = Homework(named_with_a_wrong_scale, reference().state_dict())
    t = trace(layer, torch.randn(2, T, 11))
    assert t.find("energy").operation == "2×3×7×7 / √15"
    energy = meanings(t.steps, named=True)[0]
    assert (energy.name, energy.contains) == ("scaled", {"scores", "scaled"})


def test_steps_outside_of_the_formula_keep_their_names():
    with trace() as t:
        x = step("x", torch.ones(2, 3))
        half = step("half", x / 2)
        step("joined", half.masked_fill(half > 1, 0.0).flatten())
    assert of(t) == ["x", "half", "joined"]


def test_torch_functions_mean_nothing_but_around_the_softmax():
    q, k = torch.randn(2, T, D)
    with trace() as t:
        ((q * 2) @ k.transpose(0, 1)).softmax(-1)
    assert of(t) == ["", "", "scores", "weights"]

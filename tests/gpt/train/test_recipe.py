"""Rates, groups and the rules of a recipe."""

import math

import pytest
import torch

from regard.gpt import GPT, GPTConfig
from regard.gpt.train.recipe import Recipe

RECIPE = {"steps": 100, "batch": 3, "context_length": 7, "learning_rate": 1e-3}


def test_the_rate_climbs_in_a_line_and_falls_in_a_cosine():
    recipe = Recipe(**RECIPE, warmup=10, min_learning_rate=2e-4)
    rates = [recipe.rate(step) for step in range(100)]
    torch.testing.assert_close(rates[:10], [1e-4 * (n + 1) for n in range(10)])
    right = [2e-4 + 8e-4 * (1 + math.cos(math.pi * n / 89)) / 2 for n in range(90)]
    torch.testing.assert_close(rates[10:], right)


def test_a_run_of_one_step_has_a_rate():
    assert Recipe(**RECIPE | {"steps": 1}).rate(0) == 1e-3
    assert Recipe(**RECIPE | {"steps": 1}, warmup=1).rate(0) == 1e-3


def test_only_matrices_decay():
    model = GPT(GPTConfig(vocab_size=31, context_length=7, num_layers=1, d_model=8, num_heads=2))
    decays, stays = Recipe(**RECIPE, weight_decay=0.3).optimizer(model).param_groups
    assert (decays["weight_decay"], stays["weight_decay"]) == (0.3, 0.0)
    assert {p.dim() for p in decays["params"]} == {2}
    assert {p.dim() for p in stays["params"]} == {1}
    assert len(decays["params"]) + len(stays["params"]) == len(list(model.parameters()))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 0}, r"steps \(0\) must be a whole number of at least 1"),
        ({"accumulate": 0}, r"accumulate \(0\) must be a whole number of at least 1"),
        ({"learning_rate": 0.0}, r"learning_rate \(0.0\) must be above 0; 1e-3 is usual"),
        ({"learning_rate": math.nan}, r"learning_rate \(nan\) must be above 0"),
        (
            {"min_learning_rate": 0.1},
            r"min_learning_rate \(0.1\) must be at least 0 and at most learning_rate \(0.001\)",
        ),
        ({"warmup": 101}, r"warmup \(101\) must be at least 0 and at most steps \(100\)"),
        ({"clip": 0.0}, r"clip \(0.0\) must be above 0; 1.0 is usual, inf is none"),
        ({"weight_decay": -1.0}, r"weight_decay \(-1.0\) must be at least 0; 0.1 is usual, 0 is none"),
        ({"val_fraction": 1.0}, r"val_fraction \(1.0\) must be at least 0 and below 1; 0.01 is usual, 0 is none"),
        ({"repeat": -0.1}, r"repeat \(-0.1\) must be at least 0 and below 1; 0 is none"),
        ({"seed": -1}, r"seed \(-1\) must be a whole number of at least 0 and below 2³²"),
        ({"dtype": "fp16"}, r"dtype \('fp16'\) must be 'fp32' or 'bf16'"),
    ],
)
def test_what_cannot_work_is_said(change, message, without_shape_checks):
    with pytest.raises(ValueError, match=message):
        Recipe(**RECIPE | change)

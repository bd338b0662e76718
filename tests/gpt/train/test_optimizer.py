"""The learning rate schedule, and which parameters decay."""

import math

import torch

from regard.gpt import GPT, GPTConfig
from regard.gpt.train.optimizer import adamw, learning_rate_at
from regard.gpt.train.options import Recipe

RECIPE = {"steps": 100, "batch": 3, "learning_rate": 1e-3}


def test_the_learning_rate_rises_linearly_and_falls_in_a_cosine():
    recipe = Recipe(**RECIPE, warmup=10, min_learning_rate=2e-4)
    rates = [learning_rate_at(step, recipe) for step in range(100)]
    torch.testing.assert_close(rates[:10], [1e-4 * (n + 1) for n in range(10)])
    right = [2e-4 + 8e-4 * (1 + math.cos(math.pi * n / 89)) / 2 for n in range(90)]
    torch.testing.assert_close(rates[10:], right)


def test_a_run_of_one_step_has_a_learning_rate():
    assert learning_rate_at(0, Recipe(**RECIPE | {"steps": 1})) == 1e-3
    assert learning_rate_at(0, Recipe(**RECIPE | {"steps": 1}, warmup=1)) == 1e-3


def test_only_2d_parameters_decay():
    model = GPT(GPTConfig(vocab_size=31, context_length=7, num_layers=1, d_model=8, num_heads=2))
    decays, stays = adamw(model, Recipe(**RECIPE, weight_decay=0.3)).param_groups
    assert (decays["weight_decay"], stays["weight_decay"]) == (0.3, 0.0)
    assert {p.dim() for p in decays["params"]} == {2}
    assert {p.dim() for p in stays["params"]} == {1}
    assert len(decays["params"]) + len(stays["params"]) == len(list(model.parameters()))

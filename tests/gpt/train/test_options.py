"""The table of options, and what is made of it: keyword arguments, flags, the recipe."""

import inspect
import math
import re
from dataclasses import MISSING, fields
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from regard.cli import app
from regard.gpt import fit
from regard.gpt.option_table import table
from regard.gpt.train.options import (
    FINE_TUNING,
    GPT2,
    TINY,
    FitOptions,
    ModelOptions,
    Recipe,
    command_table,
    for_command,
    learning_rate_at,
)

RECIPE = {"steps": 100, "batch": 3, "learning_rate": 1e-3}


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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"keep": 0}, r"keep \(0\) must be at least 1: a run resumes from its last checkpoint"),
        ({"evaluate_every": -1}, r"evaluate_every \(-1\) must be at least 0; 0 is never"),
        ({"evaluate_windows": -1}, r"evaluate_windows \(-1\) must be at least 0; 0 is none"),
        ({"context_length": 0}, r"context_length \(0\) must be a whole number of at least 1"),
    ],
)
def test_options_of_fit_are_checked_too(change, message):
    with pytest.raises(ValueError, match=message):
        FitOptions(out="run", **RECIPE | change)


def test_the_recipe_has_what_must_be_the_same_and_nothing_else():
    options = FitOptions(out="run", keep=7, seed=5, context_length=11, **RECIPE)
    assert options.recipe().keys() == {field.name for field in fields(Recipe)}
    assert options.recipe() == Recipe(seed=5, context_length=11, **RECIPE).recipe()
    assert options.recipe()["seed"] == 5


def test_fit_takes_every_option_by_name_and_describes_it():
    parameters = list(inspect.signature(fit).parameters.values())
    assert [p.name for p in parameters[:2]] == ["model", "data"]
    specs = list(table(FitOptions))
    assert [p.name for p in parameters[2:]] == [spec.name for spec in specs]
    for parameter, spec in zip(parameters[2:], specs, strict=True):
        assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
        assert parameter.default == (inspect.Parameter.empty if spec.default is MISSING else spec.default)
        assert f"    {spec.name}: {spec.option.help} [" in fit.__doc__


def test_an_option_that_fit_has_not_is_refused_by_name(without_shape_checks):
    with pytest.raises(TypeError, match="unexpected keyword argument 'learnin_rate'"):
        fit(None, None, out="run", steps=1, batch=1, learnin_rate=1.0)


def test_the_command_shows_every_flag_with_its_default_in_eighty_columns():
    shown = CliRunner().invoke(app, ["train", "--help"], env={"COLUMNS": "80"}).output
    assert max(map(len, shown.splitlines())) <= 80
    text = " ".join(shown.split())
    specs = list(command_table())
    assert len(specs) == 28
    for spec in specs:
        default = "[required]" if spec.default is MISSING else f"[default: {spec.default_text}]"
        assert f"{spec.option.help} {default}" in text, spec.name
    assert "--clip <float> Clip the gradient norm to this value. [default: 1.0]" in text
    assert "--weight-decay <float> Weight decay, applied to 2-D parameters. [default: 0.1]" in text
    assert "--evaluate-windows <int> Validation windows per evaluation. [default: 64]" in text
    assert "--sample-every <int> Print a sample every N steps. [default: off]" in text


def test_the_manual_lists_the_flags_of_the_table():
    page = (Path(__file__).parents[3] / "docs" / "train.md").read_text()
    rows = re.findall(r"^\| `--([\w-]+)[^`]*` \| (.*?) \| (.*?) \|$", page, flags=re.MULTILINE)
    assert rows[0][0] == "data"  # which is no option of the table
    assert rows[1:] == [
        (spec.name.replace("_", "-"), spec.option.help, "required" if spec.default is MISSING else spec.default_text)
        for spec in command_table()
    ]


@pytest.mark.parametrize(
    ("source", "start"),
    [
        (ModelOptions(), TINY),
        (ModelOptions(preset="gpt2-large"), GPT2),
        (ModelOptions(model="runs/first/model"), FINE_TUNING),
    ],
)
def test_the_command_chooses_batch_and_learning_rate_by_model(source, start):
    chosen = for_command(source, cuda=False, out="run")
    assert (chosen.batch, chosen.learning_rate) == (start.batch, start.learning_rate)
    given = for_command(source, cuda=False, out="run", batch=5, learning_rate=0.25)
    assert (given.batch, given.learning_rate) == (5, 0.25)


def test_the_command_chooses_warmup_by_steps_and_dtype_by_device():
    short, long = (
        for_command(ModelOptions(), cuda=False, out="a", steps=70),
        for_command(ModelOptions(), cuda=True, out="a", steps=7000),
    )
    assert (short.warmup, short.dtype) == (7, "fp32")
    assert (long.warmup, long.dtype) == (200, "bf16")
    assert (
        for_command(ModelOptions(), cuda=True, out="a", warmup=0, dtype="fp32").recipe()
        == Recipe(steps=1000, batch=16, learning_rate=1e-3).recipe()
    )


def test_the_learning_rate_rises_linearly_and_falls_in_a_cosine():
    recipe = Recipe(**RECIPE, warmup=10, min_learning_rate=2e-4)
    rates = [learning_rate_at(step, recipe) for step in range(100)]
    torch.testing.assert_close(rates[:10], [1e-4 * (n + 1) for n in range(10)])
    right = [2e-4 + 8e-4 * (1 + math.cos(math.pi * n / 89)) / 2 for n in range(90)]
    torch.testing.assert_close(rates[10:], right)


def test_a_run_of_one_step_has_a_learning_rate():
    assert learning_rate_at(0, Recipe(**RECIPE | {"steps": 1})) == 1e-3
    assert learning_rate_at(0, Recipe(**RECIPE | {"steps": 1}, warmup=1)) == 1e-3

"""The command lines of the benchmarks."""

import argparse
import re
import subprocess
import sys

import pytest
import torch

from regard.bench.options import DESCRIPTIONS, DTYPES, LAYERS, NEW, PARSERS, PROMPT, check_positive
from regard.bench.peers import CONTENDERS


@pytest.mark.parametrize("flag", ["-h", "--help"])
@pytest.mark.parametrize("name", PARSERS)
def test_help_fits_80_columns_and_explains_every_option(name, flag, capsys):
    with pytest.raises(SystemExit, match="0"):
        PARSERS[name]().parse_args([flag])
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    assert " ".join(text.split()).startswith(f"Usage: regard bench {name} [OPTIONS]")
    for action in PARSERS[name]()._actions:
        assert action.help, action.option_strings
        if action.help != argparse.SUPPRESS and "--help" not in action.option_strings:
            assert re.match(r"[A-Z].*[.…] \[default: .+\]$", action.help), action.help


def test_help_needs_no_torch():
    code = "import sys; from regard.bench.options import PARSERS; [p().format_help() for p in PARSERS.values()]"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; print('torch' in sys.modules)"], capture_output=True, text=True
    )
    assert done.stdout == "False\n"


def test_every_benchmark_has_a_description_and_a_module():
    assert list(DESCRIPTIONS) == list(PARSERS)
    for name in PARSERS:
        __import__(f"regard.bench.{name}")


def test_the_names_in_help_are_those_of_the_contenders():
    assert list(LAYERS) == list(CONTENDERS)


def test_every_dtype_is_one_of_torch():
    assert {name: getattr(torch, torch_name) for name, torch_name in DTYPES.items()} == {
        "bf16": torch.bfloat16,
        "bfloat16": torch.bfloat16,
        "float16": torch.float16,
        "float32": torch.float32,
        "fp16": torch.float16,
        "fp32": torch.float32,
    }


def test_defaults_are_shown_as_they_are():
    options = PARSERS["generate"]().parse_args([])
    text = " ".join(PARSERS["generate"]().format_help().split())
    values = {"rounds": options.rounds, "out": options.out, "prompt": PROMPT, "new": NEW}
    for name, value in values.items():
        assert re.search(rf"--{name} \S+ .*?\[default: (.*?)\]", text)[1] == str(value)
    assert "[default: 20]" in text
    assert options.seconds == 20.0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rounds": 0}, "--rounds 0 must be above 0"),
        ({"seconds": -1.0}, r"--seconds -1\.0 must be above 0"),
        ({"threads": -2}, "--threads -2 must be above 0"),
        ({"batch": [3, 0]}, "--batch 0 must be above 0"),
    ],
)
def test_numbers_must_be_above_0(values, message):
    fine = {"rounds": 3, "seconds": 0.5, "threads": None, "batch": [1, 2]}
    check_positive(argparse.Namespace(**fine), "batch")
    with pytest.raises(ValueError, match=message):
        check_positive(argparse.Namespace(**fine | values), "batch")

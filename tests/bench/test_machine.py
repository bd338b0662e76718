"""The machine that a benchmark ran on."""

import json

import torch

from regard.bench.machine import machine, machine_lines


def test_the_machine_is_described_in_80_columns():
    about = machine("python -m regard.bench.layer --quick")
    assert about["versions"]["torch"] == torch.__version__
    assert about["command"] == "python -m regard.bench.layer --quick"
    assert about["cores"] >= 1
    assert json.loads(json.dumps(about)) == about
    assert max(len(line) for line in machine_lines(about)) <= 80


def test_a_gpu_has_a_line_of_its_own():
    about = machine() | {"gpu": "NVIDIA H200", "cuda": "13.0", "cudnn": 91900, "commit": "0123456789ab"}
    lines = machine_lines(about)
    assert lines[1] == "  NVIDIA H200, CUDA 13.0, cuDNN 91900"
    assert lines[-1] == "  commit 0123456789ab"
    assert max(map(len, lines)) <= 80


def test_packages_that_are_missing_are_not_mentioned():
    about = machine() | {"versions": {"torch": "2.13.0", "triton": None}, "python": "3.11.7"}
    assert "  Python 3.11.7, torch 2.13.0" in machine_lines(about)

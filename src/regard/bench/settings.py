"""What all benchmarks share: the settings of a run, the start of a run, and the way from a command line to a run."""

from __future__ import annotations

import argparse
import dataclasses
import shlex
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from regard.bench.machine import machine, machine_lines
from regard.bench.options import DTYPES, PARSERS
from regard.gpt import GPTConfig


class WrongError(AssertionError):
    """A contender computes something else than it should, so nothing is timed."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """What is the same for every measurement of a run."""

    device: str
    dtype: Any  # a torch.dtype; for training its name, because weights and arithmetic have different dtypes
    rounds: int = 20
    seconds: float = 3.0
    seed: int = 0

    @property
    def cuda(self) -> bool:
        """Is the device a GPU?"""
        return torch.device(self.device).type == "cuda"

    @property
    def label(self) -> str:
        """Dtype and device, for the headings of tables.

        >>> Setting("cpu", torch.float32).label
        'float32 · cpu'
        """
        return f"{self.as_json()['dtype']} · {self.device}"

    def as_json(self) -> dict[str, Any]:
        """The fields as plain values.

        >>> Setting("cpu", torch.float32).as_json()["dtype"]
        'float32'
        """
        return dataclasses.asdict(self) | {"dtype": str(self.dtype).removeprefix("torch.")}


def find_device(name: str | None) -> tuple[str, bool]:
    """The device to measure on, and whether it is a GPU; by default, a GPU if there is one."""
    name = name or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        cuda = torch.device(name).type == "cuda"
    except RuntimeError:
        raise ValueError(f"--device {name} is none that torch knows; try cpu or cuda") from None
    if cuda and not torch.cuda.is_available():
        raise ValueError("there is no CUDA device here; try --device cpu")
    return name, cuda


def find_dtype(name: str | None, cuda: bool) -> torch.dtype:
    """The dtype of a name on the command line; by default, bf16 on a GPU and fp32 on a CPU.

    >>> find_dtype("fp16", cuda=False), find_dtype(None, cuda=True)
    (torch.float16, torch.bfloat16)
    """
    dtype: torch.dtype = getattr(torch, DTYPES[name or ("bf16" if cuda else "fp32")])
    return dtype


def choose_models(options: argparse.Namespace, quick: GPTConfig) -> dict[str, GPTConfig]:
    """The models of --model, by name; with --quick, a very small one."""
    if options.quick and options.model:
        raise ValueError(f"--quick has a model of its own; leave it out, or --model {options.model[0]}")
    return {"quick": quick} if options.quick else {n: GPTConfig.preset(n) for n in options.model or ["gpt2-small"]}


def limits(options: argparse.Namespace, rounds: int, seconds: float) -> dict[str, Any]:
    """The options --rounds and --seconds; with --quick, at most these."""
    if not options.quick:
        return {"rounds": options.rounds, "seconds": options.seconds}
    return {"rounds": min(options.rounds, rounds), "seconds": min(options.seconds, seconds)}


def check_output(directory: str) -> None:
    """Make the output directory and write to it, before anything is measured that could then not be saved."""
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise ValueError(
            f"--out {directory} cannot be written to: {error.strerror}; choose another directory"
        ) from None


def start(
    benchmark: str, command: str, device: str, settings: dict[str, Any], show: Callable[[str], None]
) -> dict[str, Any]:
    """Select the GPU, show the machine, and return the results so far: benchmark, machine and settings."""
    if torch.device(device).type == "cuda":
        torch.cuda.set_device(torch.device(device).index or 0)  # streams, events and memory use the current device
    about = machine(command)
    show("\n".join(machine_lines(about)))
    return {"benchmark": benchmark, "machine": about, "settings": settings}


def run_command(
    name: str, argv: Sequence[str] | None, prepare: Callable[[argparse.Namespace], Callable[..., object]]
) -> int:
    """Parse the command line of a benchmark and run it.

    prepare: checks the options, raising a ValueError where one is wrong, and returns the run, to be called with `command`.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    parser = PARSERS[name]()
    options = parser.parse_args(argv)
    try:
        run = prepare(options)
        check_output(options.out)
    except (ValueError, RuntimeError) as error:
        parser.error(str(error))
    if options.threads:
        torch.set_num_threads(options.threads)
    try:
        run(command=shlex.join(["python", "-m", f"regard.bench.{name}", *argv]))
    except WrongError as error:
        parser.exit(1, f"{error}\n")
    return 0

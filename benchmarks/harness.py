"""What all benchmarks share: command line, settings of a run, the machine it runs on, and how results are reported."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from regard.gpt import GPTConfig
from regard.show.terminal.table import text_table
from regard.support.files import atomically

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}  # by their names on the command line
ROOT = Path(__file__).parents[1]


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
        """Dtype and device, for the headings of tables."""
        return f"{self.as_json()['dtype']} · {self.device}"

    def as_json(self) -> dict[str, Any]:
        """The fields as plain values."""
        return dataclasses.asdict(self) | {"dtype": str(self.dtype).removeprefix("torch.")}


def timing_options(parser: argparse.ArgumentParser, *, rounds: int, seconds: float, quick: str) -> None:
    """Add the options of every benchmark that measures time."""
    parser.add_argument("--device", help="device: cpu, cuda, … [default: cuda if available, else cpu]")
    parser.add_argument("--rounds", type=int, default=rounds, help="most rounds per contender [default: %(default)s]")
    parser.add_argument(
        "--seconds", type=float, default=seconds, help="most time per contender and figure [default: %(default)g]"
    )
    parser.add_argument("--threads", type=int, help="CPU threads [default: PyTorch's]")
    parser.add_argument("--out", default="bench-out", metavar="DIR", help="output directory [default: %(default)s]")
    parser.add_argument("--quick", action="store_true", help=f"{quick}, for a run of a few seconds")


def dtype_option(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add --dtype."""
    parser.add_argument("--dtype", choices=names or DTYPES, help="data type [default: bf16 on a GPU, else fp32]")


def model_option(parser: argparse.ArgumentParser) -> None:
    """Add --model, which choose_models reads."""
    parser.add_argument("--model", action="append", help="preset of GPTConfig; may be repeated [default: gpt2-small]")


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
    """The dtype of a name on the command line; by default, bf16 on a GPU and fp32 on a CPU."""
    return DTYPES[name or ("bf16" if cuda else "fp32")]


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


def check_positive(options: argparse.Namespace, *also: str) -> None:
    """Refuse rounds, seconds, threads and the named options unless they are above 0; lists number by number."""
    for option in ("rounds", "seconds", "threads", *also):
        value = getattr(options, option, None)
        for number in value if isinstance(value, list) else [value]:
            if number is not None and number <= 0:
                raise ValueError(f"--{option} {number} must be above 0")


def run_command(
    name: str,
    argv: Sequence[str],
    add_options: Callable[[argparse.ArgumentParser], None],
    prepare: Callable[[argparse.Namespace], Callable[..., object]],
) -> int:
    """Parse the command line of a benchmark and run it.

    prepare: checks the options, raising a ValueError where one is wrong, and returns the run, to be called with
    `command`.
    """
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks {name}", allow_abbrev=False)
    add_options(parser)
    options = parser.parse_args(argv)
    try:
        run = prepare(options)
        _check_output(options.out)
    except (ValueError, RuntimeError) as error:
        parser.error(str(error))
    if options.threads:
        torch.set_num_threads(options.threads)
    try:
        run(command=shlex.join(["python", "-m", "benchmarks", name, *argv]))
    except WrongError as error:
        parser.exit(1, f"{error}\n")
    return 0


def _check_output(directory: str) -> None:
    """Make the output directory and write to it, before anything is measured that could then not be saved."""
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        message = f"--out {directory} cannot be written to: {error.strerror}; choose another directory"
        raise ValueError(message) from None


def start(benchmark: str, command: str, device: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Select the GPU, show the machine, and return the results so far: benchmark, machine and settings."""
    if torch.device(device).type == "cuda":
        torch.cuda.set_device(torch.device(device).index or 0)  # streams, events and memory use the current device
    about = machine(command)
    say("\n".join(machine_lines(about)))
    return {"benchmark": benchmark, "machine": about, "settings": settings}


def machine(command: str = "") -> dict[str, Any]:
    """Hardware, versions, commit and command: a measurement means little without them."""
    cuda = torch.cuda.is_available()
    packages = ("torch", "regard", "transformers", "x-transformers", "triton")
    return {
        "command": command,
        "commit": _commit(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if cuda else None,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version() if cuda else None,
        "python": platform.python_version(),
        "versions": {name: version for name in packages if (version := _version(name))},
    }


def machine_lines(about: dict[str, Any]) -> list[str]:
    """The machine in a few lines of at most 80 columns."""
    lines = [f"{about['cpu']}, {about['cores']} cores, {about['threads']} threads"]
    if about["gpu"]:
        lines.append(f"{about['gpu']}, CUDA {about['cuda']}, cuDNN {about['cudnn']}")
    versions = [f"Python {about['python']}", *(f"{name} {version}" for name, version in about["versions"].items())]
    lines.append(", ".join(versions))
    if about["commit"]:
        lines.append(f"commit {about['commit']}")
    return [part for line in lines for part in wrap(line)]


def _cpu() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit of this clone, or None where there is no git."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, timeout=10, check=True)
        return done.stdout.strip()

    try:
        changed = git("status", "--porcelain", "--", "src", "benchmarks")
        return git("rev-parse", "--short=12", "HEAD") + (" + changes" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return None


def say(text: str) -> None:
    """Print at once, so that the lines on stdout and stderr stay in order."""
    print(text, flush=True)


def stage(text: str) -> None:
    """Say on stderr what is being done."""
    print(f"  {text} ...", file=sys.stderr, flush=True)


def wrap(note: str) -> list[str]:
    """A note below a table, at most 78 columns wide."""
    return textwrap.wrap(note, 78, initial_indent="  ", subsequent_indent="    ")


def table_lines(
    head: Sequence[str], columns: Sequence[Sequence[str]], marked: int | None = None, words: int = 1
) -> list[str]:
    """The lines of a table that is given by columns; the first `words` are aligned left.

    >>> print(*table_lines(["who", "ms"], [["we", "they"], ["1.0", "12.5"]], marked=0), sep="|")
      who     ms|→ we     1.0|  they  12.5
    """
    return text_table(head, list(zip(*columns, strict=True)), None, words=words, marked=marked).splitlines()


def reason(error: Exception) -> str:
    """Why a contender failed, in one short line."""
    first = next((line for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {first.strip()}"[:160]


def write_json(path: Path, data: object) -> None:
    """Write a JSON file completely or not at all."""
    text = json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomically(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def same_digits(values: Sequence[float | None]) -> list[str]:
    """The numbers of one column with the same number of decimals, enough to tell the smallest apart.

    >>> same_digits([0.5, 12.0, None])
    ['0.500', '12.000', '-']
    """
    known = [v for v in values if v is not None]
    least, most = min(known, default=1.0), max(known, default=1.0)
    digits = 1 if least >= 100 or most >= 9999 else 2 if least >= 10 or most >= 999 else 3
    return ["-" if v is None else f"{v:.{digits}f}" for v in values]

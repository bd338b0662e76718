"""What all benchmarks have in common: their command line, and what holds for every measurement of a run."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

DTYPES = {
    "fp32": torch.float32, "float32": torch.float32, "bf16": torch.bfloat16, "bfloat16": torch.bfloat16,
    "fp16": torch.float16, "float16": torch.float16,
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Setting:
    """What holds for every measurement of a run."""

    device: str
    dtype: Any  # torch's; or a word, where weights and arithmetic differ in it
    rounds: int = 20
    seconds: float = 3.0
    seed: int = 0

    @property
    def cuda(self) -> bool:
        return torch.device(self.device).type == "cuda"

    @property
    def words(self) -> str:
        return f"{self.named()['dtype']} · {self.device}"

    def named(self) -> dict[str, Any]:
        """For a file.

        >>> Setting("cpu", torch.float32).named()["dtype"]
        'float32'
        """
        return dataclasses.asdict(self) | {"dtype": str(self.dtype).removeprefix("torch.")}


def parser(name: str, description: str, *, rounds: int, seconds: float, quick: str) -> argparse.ArgumentParser:
    """A command line with what every benchmark is told."""
    made = argparse.ArgumentParser(prog=f"regard bench {name}", description=description)
    here = "cuda" if torch.cuda.is_available() else "cpu"
    made.add_argument("--device", default=here, help=f"cpu or cuda (default here: {here})")
    made.add_argument("--rounds", type=int, default=rounds, help=f"at most this many (default {rounds})")
    made.add_argument("--seconds", type=float, default=seconds, help=f"per contender and figure (default {seconds:g})")
    made.add_argument("--threads", type=int, help="CPU threads (default: what torch takes)")
    made.add_argument("--out", default="bench-out", metavar="FOLDER", help="default: bench-out")
    made.add_argument("--quick", action="store_true", help=quick)
    return made


@contextmanager
def refusing(made: argparse.ArgumentParser) -> Iterator[None]:
    """What cannot be is said as argparse says it, without a traceback."""
    try:
        yield
    except (ValueError, RuntimeError) as error:
        made.error(str(error))


def on_cuda(device: str) -> bool:
    """Is this a GPU, and is it there?"""
    cuda = torch.device(device).type == "cuda"
    if cuda and not torch.cuda.is_available():
        raise ValueError("there is no CUDA device here; try --device cpu")
    return cuda


def check_above_0(told: argparse.Namespace, *also: str) -> None:
    """Numbers that must be above 0: rounds, seconds, threads and those that are named; lists number by number."""
    for option in ("rounds", "seconds", "threads", *also):
        given = getattr(told, option)
        for value in given if isinstance(given, list) else [given]:
            if value is not None and value <= 0:
                raise ValueError(f"--{option} {value} must be above 0")


def patience(told: argparse.Namespace, rounds: int, seconds: float) -> dict[str, Any]:
    """Rounds and seconds as told; no more than these where it is to be quick."""
    if not told.quick:
        return {"rounds": told.rounds, "seconds": told.seconds}
    return {"rounds": min(told.rounds, rounds), "seconds": min(told.seconds, seconds)}

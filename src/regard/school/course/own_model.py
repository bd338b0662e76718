"""A learner's own model: trained on a book, it writes, and its heads are watched. Runs in a process of its own.

`train_own_model` starts that process and yields what it tells, a JSON object in a line. Nothing of the learner's runs
in the process that calls it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

BOOK = Path(__file__).parents[1] / "texts" / "alice.txt"
SPARE_SECONDS = 120.0  # for tokens and heads, which are not training, on a busy machine


@dataclass(frozen=True)
class OwnRecipe:
    """What is trained, and how. It was chosen so that a head learns to copy within the time, on two cores."""

    merges: int = 96
    learned_on: int = 30_000  # characters from which the merges are learned
    width: int = 64
    heads: int = 2
    depth: int = 2
    context: int = 32
    batch: int = 48
    lists: int = 24  # of these, lists of random tokens that begin again and again
    steps: int = 2500
    rate: float = 3e-3
    seconds: float = 232.0
    every: int = 100  # steps between two looks at the losses
    seed: int = 0
    prompt: str = "Alice "
    count: int = 300  # tokens to write
    temperature: float = 0.7


def train_own_model(answer: Path, recipe: OwnRecipe, book: Path = BOOK) -> Iterator[dict[str, Any]]:
    """Train the model of a learner's file, and yield what happens: tokens, progress, the result, or an error.

    The process has its limit of time, and ends with this generator, too.
    """
    job = json.dumps({"answer": str(answer.resolve()), "recipe": asdict(recipe), "book": str(book.resolve())})
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # matrices of this size are slower with more
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "regard.school.course.own_model_process", job],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, env=environment, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        try:
            deadline = time.monotonic() + recipe.seconds + SPARE_SECONDS
            ended = False
            for line in process.stdout:
                told = json.loads(line)
                ended = ended or "error" in told or "result" in told
                yield told
                if time.monotonic() > deadline:
                    break
            if not ended:
                is_late = time.monotonic() > deadline
                yield {
                    "error": f"it was stopped after {recipe.seconds + SPARE_SECONDS:.0f} s"
                    if is_late
                    else _last(errors)
                }
        finally:
            process.kill()
            process.stdout.close()
            process.wait()


def _last(errors: Any) -> str:
    errors.seek(0)
    lines = errors.read()[-4000:].decode("utf-8", "replace").strip().splitlines()
    return f"its process ended: {lines[-1] if lines else 'it said nothing'}"

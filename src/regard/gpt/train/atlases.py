"""Small atlases of a model while it trains: the same few texts and the same probe each time, so that steps compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from regard.gpt.model import GPT

ATLASES = "atlases"  # a directory of the run
TEXTS, LENGTH = 16, 128  # of each, at most: texts, and their tokens
PROBES = 8  # texts of random tokens: as many as a standard error needs
_DIFFERENT = 50  # tokens of the data from which on no others are drawn for the probe


def write_atlas(model: GPT, texts: Tensor, out: Path, step: int, known: Sequence[int] = ()) -> Path:
    """Measure what every head does in these texts, (B, T), and keep it beside the checkpoints.

    known: ids of the data, from which the random tokens of the probe are drawn where there are enough: a small text has
    few of the tokens of a vocabulary, and nothing is learned about the others.
    """
    from regard.heads.atlas.collect import atlas

    path = out / ATLASES / f"step-{step:07}.safetensors"
    among = known if len(known) >= _DIFFERENT else None
    measured = atlas(model, [texts], probe={"texts": PROBES, "among": among})
    replace(measured, extra={"step": step}).save(path)
    return path


def atlas_files(out: Path) -> list[Path]:
    """Those of a run, by step."""
    return sorted((out / ATLASES).glob("step-*.safetensors"))

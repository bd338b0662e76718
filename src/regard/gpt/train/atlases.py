"""Small atlases of a model while it trains: the same few texts and the same probe each time, so that steps compare."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from torch import Tensor

from regard.gpt.model import GPT

ATLASES = "atlases"  # a directory of the run
TEXTS, LENGTH = 16, 128  # of each, at most: texts, and their tokens


def write_atlas(model: GPT, texts: Tensor, out: Path, step: int) -> Path:
    """Measure what every head does in these texts, (B, T), and keep it beside the checkpoints."""
    from regard.heads.atlas.collect import atlas

    path = out / ATLASES / f"step-{step:07}.safetensors"
    measured = replace(atlas(model, [texts], probe=True), extra={"step": step})
    measured.save(path)
    return path


def atlas_files(out: Path) -> list[Path]:
    """Those of a run, by step."""
    return sorted((out / ATLASES).glob("step-*.safetensors"))

"""Calling: the arguments that a learner's forward takes, and which tensor of its result is the output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

MASK = ("mask", "attn_mask", "attention_mask", "causal_mask", "src_mask")


@dataclass(frozen=True)
class Call:
    """Names of tensors for a call, and how the mask among them is written."""

    args: tuple[str, ...]
    kwargs: Mapping[str, str]
    mask: str = ""  # the form of the mask; "" where none is passed

    def as_json(self) -> dict[str, Any]:
        """As the driver reads it."""
        return {"args": list(self.args), "kwargs": dict(self.kwargs)}


def forms(T: int, causal: bool, dtype: torch.dtype) -> dict[str, Tensor]:
    """A mask in each form that layers take, by name."""
    seen = torch.ones(T, T, dtype=torch.bool)
    seen = seen.tril() if causal else seen
    added = torch.zeros(T, T, dtype=dtype).masked_fill(~seen, -torch.inf)
    written = {"True = may attend": seen, "True = hidden": ~seen, "added": added, "1 = may attend": seen.to(dtype)}
    return written | {f"{name}, four axes": mask[None, None] for name, mask in written.items()}


def calls(described: Mapping[str, Any], masks: Sequence[str]) -> Iterator[Call]:
    """Ways to call it with x: without a mask where it needs none, and with each of these forms where it takes one."""
    parameters = [p for p in described["call"] if p["kind"] in ("POSITIONAL_ONLY", "POSITIONAL_OR_KEYWORD")]
    required = [p["name"] for p in parameters if p["required"]] or [p["name"] for p in parameters[:1]] or ["x"]
    takes = next((p["name"] for p in described["call"] if p["name"].lower() in MASK), None)
    if takes is None or takes not in required:
        yield Call(tuple("x" for _ in required), {})
    for form in masks if takes is not None else ():
        if takes in required:
            yield Call(tuple(form if name == takes else "x" for name in required), {}, form)
        else:
            yield Call(tuple("x" for _ in required), {str(takes): form}, form)


def output_of(outputs: Sequence[Tensor], B: int, T: int) -> Tensor | None:
    """The output among the tensors of a result: the first of shape (B, T, width)."""
    return next((t for t in outputs if t.dim() == 3 and t.shape[:2] == (B, T) and t.is_floating_point()), None)

"""Calling: the arguments that a learner's forward takes, and which tensor of its result is the output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from regard.support import vocabulary as words

MASK = (*words.MASK, *words.MASK_TOO)
LAYOUTS = ("batch first", "tokens first", "one text")  # "heads apart", (B, H, T, D), for functions of q, k, v
# Of forward, where they are required.
VALUES: dict[str, Any] = {
    **dict.fromkeys(("is_causal", "causal"), True),
    **dict.fromkeys(("valid_lens", "lengths", "valid_len", "padding_mask", "key_padding_mask", "cache"), None),
}


@dataclass(frozen=True)
class CallForm:
    """Names of tensors for a call, how x is laid out, and how the mask among them is written."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    layout: str = LAYOUTS[0]
    mask: str = ""  # the form of the mask; "" where none is passed

    def as_json(self) -> dict[str, Any]:
        """As the driver reads it."""
        return {"args": list(self.args), "kwargs": dict(self.kwargs)}

    def outputs(self, tensors: Sequence[Tensor], B: int, T: int) -> list[Tensor]:
        """The tensors of a result that may be the output, as (B, T, width): the first of each shape, no second guess."""
        first = {t.shape: t for t in reversed(tensors) if t.is_floating_point()}
        result = [t for t in tensors if first.get(t.shape) is t]
        if self.layout == "tokens first":
            return [t.transpose(0, 1) for t in result if t.dim() == 3 and t.shape[:2] == (T, B)]
        if self.layout == "heads apart":
            return [t.transpose(1, 2).flatten(2) for t in result if t.dim() == 4 and t.shape[::2] == (B, T)]
        if self.layout == "one text":
            return [t[None] for t in result if t.dim() == 2 and len(t) == T]
        return [t for t in result if t.dim() == 3 and t.shape[:2] == (B, T)]


def inputs(x: Tensor) -> dict[str, Tensor]:
    """x in each layout, by the name that calls use."""
    return {"x": x, "x, tokens first": x.transpose(0, 1).contiguous(), "x, one text": x[0]}


def mask_forms(visible: Tensor, dtype: torch.dtype, B: int) -> dict[str, Tensor]:
    """A mask (T, T) in each form that layers take, by name."""
    added = torch.zeros(visible.shape, dtype=dtype).masked_fill(~visible, -torch.inf)
    written = {
        "True = may attend": visible,
        "True = hidden": ~visible,
        "added to the scores": added,
        "1 = may attend": visible.to(dtype),
        "1 = hidden": (~visible).to(dtype),
    }
    forms = dict(written)
    forms |= {f"{name}, (1, 1, T, T)": mask[None, None] for name, mask in written.items()}
    forms |= {f"{name}, (B, T, T)": mask.expand(B, -1, -1).clone() for name, mask in written.items()}
    return forms


def mask_argument(described: Mapping[str, Any]) -> str | None:
    """The name of forward's argument for a mask."""
    return next((p["name"] for p in described["call"] if p["name"].lower() in MASK), None)


def call_forms(described: Mapping[str, Any], masks: Sequence[str], layouts: Sequence[str]) -> Iterator[CallForm]:
    """Ways to call it with x in these layouts: without a mask, or with each of these forms of it."""
    parameters = [p for p in described["call"] if p["kind"] in ("POSITIONAL_ONLY", "POSITIONAL_OR_KEYWORD")]
    required = [p["name"] for p in parameters if p["required"]] or [p["name"] for p in parameters[:1]] or ["x"]
    mask = mask_argument(described)
    if not masks and len(parameters) > len(required):  # forward(x, key=None, value=None): cross-attention, if given
        required += [p["name"] for p in parameters[len(required) :] if _is_other_input(p["name"], required)]
    for layout in layouts:
        x = "x" if layout == LAYOUTS[0] else f"x, {layout}"
        for form in masks or ("",):
            args: list[Any] = []
            for name in required:
                if name == mask:
                    args.append(form or {"value": None})
                else:
                    args.append({"value": VALUES[name]} if name in VALUES else x)
            kwargs: dict[str, Any] = {mask: form} if mask is not None and mask not in required and form else {}
            yield CallForm(tuple(args), kwargs, layout, form)


def _is_other_input(name: str, required: Sequence[str]) -> bool:
    """Is it the key or value beside a query that is required?"""
    return required[0].lower() in ("q", "query", "queries") and name.lower() in (
        "k",
        "v",
        "key",
        "value",
        "keys",
        "values",
    )

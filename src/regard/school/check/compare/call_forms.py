"""Call forms: what a learner's forward takes, which tensor is its output, and whether it must hide the future."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import torch
from torch import Tensor

from regard.school.check.compare.constructor_arguments import CONTEXT, takes
from regard.school.check.learner_code.protocol import ArgumentFacts, CallJob, Description, ModuleContents
from regard.school.check.learner_code.subject import Subject
from regard.school.check.request import Request
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

    def as_json(self) -> CallJob:
        """As the driver reads it."""
        return {"args": list(self.args), "kwargs": dict(self.kwargs)}

    def outputs(self, tensors: Sequence[Tensor], B: int, T: int) -> list[Tensor]:
        """The tensors of a result that may be the output, as (B, T, width): the first of each shape."""
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
    in_heads = {f"{name}, (1, 1, T, T)": mask[None, None] for name, mask in written.items()}
    in_texts = {f"{name}, (B, T, T)": mask.expand(B, -1, -1).clone() for name, mask in written.items()}
    return {**written, **in_heads, **in_texts}


def mask_argument(described: Description) -> str | None:
    """The name of forward's argument for a mask."""
    return next((p["name"] for p in described["call"] if p["name"].lower() in MASK), None)


def positional(arguments: Sequence[ArgumentFacts]) -> list[ArgumentFacts]:
    """Arguments that may be given by position."""
    return [p for p in arguments if p["kind"] in ("POSITIONAL_ONLY", "POSITIONAL_OR_KEYWORD")]


def call_forms(described: Description, masks: Sequence[str], layouts: Sequence[str]) -> Iterator[CallForm]:
    """Ways to call it with x in these layouts: without a mask, or with each of these forms of it."""
    mask, required = mask_argument(described), _required(positional(described["call"]), bool(masks))
    for layout, form in product(layouts, masks or ("",)):
        x = "x" if layout == LAYOUTS[0] else f"x, {layout}"
        values: dict[str | None, Any] = {name: {"value": value} for name, value in VALUES.items()}
        values[mask] = form or {"value": None}
        kwargs = {mask: form} if mask is not None and mask not in required and form else {}
        yield CallForm(tuple(values.get(name, x) for name in required), kwargs, layout, form)


def _required(parameters: Sequence[ArgumentFacts], masked: bool) -> list[str]:
    """The arguments that are passed: those without a default; or the first, or x where nothing is known of them."""
    names = [p["name"] for p in parameters]
    required = [p["name"] for p in parameters if p["required"]] or names[:1] or ["x"]
    if not masked and required[0].lower() in ("q", "query", "queries"):
        others = ("k", "v", "key", "value", "keys", "values")  # with a default: cross-attention, if given
        required += [name for name in names[len(required) :] if name.lower() in others]
    return required


def expects_causal(subject: Subject, contents: ModuleContents, request: Request) -> bool | None:
    """Should it hide the future? None where nothing says so: then both are right."""
    if request.causal is not None:
        return request.causal
    described, attributes = subject.described, contents.get("attributes", {})
    name = described["name"].lower()
    if flags := [value for flag, value in attributes.items() if flag in ("causal", "is_causal")]:
        return bool(flags[0])
    if any(word in name for word in ("bidirectional", "encoder", "cross", "unmasked", "vit", "bert")):
        return None
    if any(word in name for word in ("causal", "masked", "decoder", "gpt")):
        return True
    kept = (*contents.get("buffers", ()), *contents.get("loose", ()), *contents.get("parameters", ()))
    if any(one["is_mask"] for one in kept):
        return True
    is_told = takes(described, CONTEXT) if not subject.is_built else any(n in attributes for n in CONTEXT[:4])
    return True if is_told and mask_argument(described) is None else None


def causal_mask(T: int) -> Tensor:
    """(T, T), True = may attend."""
    return torch.ones(T, T, dtype=torch.bool).tril()


def random_tensor(seed: int, *shape: int) -> Tensor:
    """Numbers in float64, the same for the same seed."""
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))

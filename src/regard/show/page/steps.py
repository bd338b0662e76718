"""The steps of a layer, from x to out, for the view Steps: what each tensor is called, how it is made, and its numbers.

A number keeps the upper three bytes of its float32, rounded to 12 bits of its fraction: within 1 part in 8,000, which
is more than the view shows; queries and keys to 15 bits where the weights could not be computed from 12, x and out to 8
where only bars are drawn. Integers keep all four bytes. A step that only reads another one's numbers in a different
order (split, transpose, concat) stores none: it has strides. Maps from scores to weights are computed by the page.
js/data/step-tensors.js reads them.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.show.page.computed_steps import BITS, add_recipes, is_precise, mixture, rounded
from regard.show.page.encode import compress
from regard.traces.operation_text import shape_text
from regard.traces.torch_calls import Step
from regard.traces.trace import Trace

DRAWN = 64  # numbers of a token from which x and out are bars without digits
DRAWN_BITS = 8  # of their fraction: within 1 part in 500
MOST = 2**20  # numbers of one step; a step with more is described, but its numbers are not in the page

# What the axes of a step mean, by its name; "token" is a query or a key. Those before the last two may be missing.
_AXES = {
    **dict.fromkeys(("scores", "mask", "scaled", "bias", "weights", "dropout"), ("batch", "head", "query", "key")),
    **dict.fromkeys(("x", "source", "queries", "keys", "values", "concat", "out"), ("batch", "token", "width")),
    **dict.fromkeys(("transpose", "normed", "turned", "context"), ("batch", "head", "token", "width")),
    **dict.fromkeys(("split", "back"), ("batch", "token", "head", "width")),
}
_JOINED = {"queries", "keys", "values", "concat"}  # the heads' numbers one after the other


Document = dict[str, Any]


class LayerSizes(NamedTuple):
    """The sizes of a layer's attention: heads, key/value heads, queries and keys."""

    H: int
    Hkv: int
    T: int
    S: int


def describe_steps(steps: Trace, sizes: LayerSizes, text: int, key: str) -> tuple[list[Document], dict[str, bytes]]:
    """The steps of a trace as JSON, for one text of the batch, and the blocks with their numbers.

    key: blocks are called KEY.0, KEY.1 and so on.
    """
    batch = _batch(steps, sizes)
    described = [_describe(one, sizes, text, batch, "queries" in steps) for one in steps]
    stored: list[tuple[Tensor, Document]] = []  # the numbers of each block, flat, and the step that it is of
    blocks: dict[str, bytes] = {}

    def store(content: bytes, planes: int = 1) -> str:
        name = f"{key}.{len(blocks)}"
        blocks[name] = compress(content, planes)
        return name

    def made_with(bits: int) -> set[int]:
        blocks.clear()
        for document, _ in described:
            document["made"] = None
        return add_recipes(described, sizes.H, store, bits)

    few, more = (len(made_with(bits)) for bits in BITS)
    bits = BITS[more > few]
    made = {id(described[number][0]) for number in made_with(bits)}
    stored += mixture(described, sizes.H)
    # A tensor with fewer axes is stored, those with more are read from it: strides can split heads, not join them.
    for document, value in sorted(described, key=lambda pair: pair[1].dim()):
        if id(document) in made:
            document["strides"] = list(torch.empty(value.shape, device="meta").stride())
            continue
        if value.is_meta or value.is_complex() or value.numel() > MOST:
            continue
        numbers = value.detach().cpu().float()
        if not _read_from(stored, numbers, document):
            kept = rounded(numbers, _bits(document, steps, bits)) if document["bytes"] == 3 else numbers
            document |= {
                "block": store(to_planes(kept, document["bytes"]), document["bytes"]),
                "strides": list(numbers.contiguous().stride()),
            }
            stored.append((numbers.flatten(), document))
    return [document for document, _ in described], blocks


def _bits(document: Document, steps: Trace, bits: int) -> int:
    """Of a number's fraction: bits where scores are made of it, few where it is drawn and not written."""
    if is_precise(document["name"], "queries" in steps):
        return bits
    is_drawn = document["name"] in ("x", "out") and "queries" in steps and document["sizes"][-1] > DRAWN
    return DRAWN_BITS if is_drawn else BITS[0]


def to_planes(numbers: Tensor, count: int) -> bytes:
    """float32 numbers as their `count` upper bytes, rounded: first all upper bytes, then all that follow.

    >>> to_planes(torch.tensor([1.0, -2.5]), 3).hex()
    '3fc080200000'
    """
    bits = numbers.float().contiguous().numpy().reshape(-1).view(np.uint32).astype(np.uint64)
    if count < 4:
        half = np.uint64(1 << (8 * (4 - count) - 1))
        finite = np.isfinite(numbers.float().numpy().reshape(-1))
        bits = np.where(finite, bits + half, bits)
    planes = (bits >> np.uint64(24 - 8 * plane) & np.uint64(255) for plane in range(count))
    return b"".join(plane.astype(np.uint8).tobytes() for plane in planes)


def _describe(one: Step, sizes: LayerSizes, text: int, batch: int | None, named: bool) -> tuple[Document, Tensor]:
    """A step without its numbers, and the tensor of one text. named: the steps are those of a layer of regard."""
    # In code that names no steps, the call torch.transpose is a step called transpose, whatever it is for.
    known = named or one.name in ("x", "context") or "key" in _AXES.get(one.name, ())
    axes = _axes(one, sizes, batch) if known else _axes_by_size(one.shape, sizes, batch)
    value = one.value
    if axes and axes[0] == "batch":
        value, axes = value[text], axes[1:]
    heads = sizes.Hkv if {"keys", "values"} & set(one.name.split(" ")) else sizes.H
    joined = one.name in _JOINED and axes and heads > 1 and value.shape[-1] % heads == 0
    return {
        "name": one.name,
        "operation": one.operation,
        "shape": shape_text(one.shape),
        "why": one.why,
        "dtype": str(one.dtype).removeprefix("torch."),
        "axes": axes,
        "sizes": list(value.shape),
        "heads": heads if joined else 1,  # in the last axis
        "bytes": 3 if value.is_floating_point() else 4,
        "block": None,
        "made": None,  # the recipe of a map that the page computes
        "strides": [],
    }, value


def _axes(one: Step, sizes: LayerSizes, batch: int | None) -> list[str]:
    """What each axis of a step is: batch, head, query, key, width, or "" where that is not known."""
    shape = one.shape
    of_keys = one.name == "source" or bool({"keys", "values"} & set(one.name.split(" ")))
    axes = list(_AXES.get(one.name.removesuffix(" keys").removesuffix(" values"), ()))
    if len(shape) == 3 and axes[1:2] == ["head"] and (sizes.H == 1 or "key" not in axes):
        axes.remove("head")
    axes = [("key" if of_keys else "query") if axis == "token" else axis for axis in axes[-len(shape) :]]
    expected = {"head": sizes.Hkv if of_keys else sizes.H, "query": sizes.T, "key": sizes.S}
    if len(axes) != len(shape) or any(expected.get(axis, n) != n for axis, n in zip(axes, shape, strict=True)):
        return _axes_by_size(shape, sizes, batch)
    return axes


def _axes_by_size(shape: Sequence[int], sizes: LayerSizes, batch: int | None) -> list[str]:
    """Of a step with another name: batch, tokens and heads, each if exactly one axis fits."""
    axes = [""] * len(shape)
    if batch is not None and len(shape) > 2 and shape[0] == batch:
        axes[0] = "batch"
    tokens = [i for i, axis in enumerate(axes) if not axis and shape[i] == sizes.T]
    if len(tokens) == 1 and tokens[0] < len(shape) - 1 and sizes.T == sizes.S and sizes.T > 1:
        axes[tokens[0]] = "query"
        heads = [i for i, axis in enumerate(axes) if not axis and i < len(shape) - 1]
        if len(heads) == 1 and shape[heads[0]] == sizes.H:
            axes[heads[0]] = "head"
    return axes


def _batch(steps: Trace, sizes: LayerSizes) -> int | None:
    """How many texts ran, by the weights."""
    shape = next((one.shape for one in steps if one.name == "weights"), ())
    if len(shape) >= 2 and shape[-2:] != (sizes.T, sizes.S):
        raise ValueError(
            f"the trace has {shape[-2]} queries × {shape[-1]} keys and the report {sizes.T} × {sizes.S}; "
            "trace the layer with the text of the report"
        )
    return shape[0] if len(shape) == 4 or (len(shape) == 3 and sizes.H == 1) else None


def _read_from(stored: Sequence[tuple[Tensor, Document]], value: Tensor, document: Document) -> bool:
    """If a stored block has the same numbers, perhaps with two axes swapped, refer to it."""
    for swap in [(), *combinations(range(value.dim()), 2)]:
        as_stored = value.transpose(*swap).contiguous() if swap else value.contiguous()
        flat = as_stored.flatten()
        for numbers, first in stored:
            if numbers.shape != flat.shape or first["bytes"] != document["bytes"]:
                continue
            if torch.equal(numbers.view(torch.int32), flat.view(torch.int32)):
                strides = as_stored.transpose(*swap).stride() if swap else as_stored.stride()
                document |= {"block": first["block"], "made": first["made"], "strides": list(strides)}
                return True
    return False

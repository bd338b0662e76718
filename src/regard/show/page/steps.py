"""The steps of a layer, from x to out, for the view Steps: what each tensor is called, how it is made, and its numbers.

A number keeps the upper three bytes of its float32, within 1 part in 65,000; integers keep all four. A step that only
reads another one's numbers in a different order (split, transpose, concat) stores none: it has strides. js/tensors.js
reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.attention.layer import MultiHeadAttention
from regard.show.page.encode import compress
from regard.traces.lineage import Step
from regard.traces.operation_text import shape_text
from regard.traces.trace import Trace, trace

MOST = 2**20  # numbers of one step; a step with more is described, but its numbers are not in the page

# What the axes of a step mean, by its name. Those before the last two may be missing.
_MAPS = {"scores", "mask", "scaled", "bias", "weights", "dropout"}
_VECTORS = {"x", "source", "queries", "keys", "values", "concat", "out"}
_JOINED = {"queries", "keys", "values", "concat"}  # the heads' numbers one after the other
_HEADS_FIRST = {"transpose", "normed", "turned", "context"}
_TOKENS_FIRST = {"split", "back"}


@dataclass(frozen=True)
class LayerSizes:
    """The sizes of a layer's attention: heads, key/value heads, queries and keys."""

    H: int
    Hkv: int
    T: int
    S: int


def trace_layer(model: nn.Module, layer: int | str, *inputs: Any, **options: Any) -> Trace:
    """Run a model and trace one of its attention layers, with the input that it gets there.

    >>> import regard
    >>> model = regard.GPT("tiny").eval()
    >>> trace_layer(model, 4, torch.tensor([[5, 6, 7]])).names[:4]
    ['x', 'queries', 'keys', 'values']

    layer: a number counts the layers of type regard.MultiHeadAttention; a name is that of any submodule.
    """
    attention = _find(model, layer)
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    hook = attention.register_forward_pre_hook(lambda _, args, kw: calls.append((args, kw)), with_kwargs=True)
    try:
        with torch.no_grad():
            model(*inputs, **options)
    finally:
        hook.remove()
    if not calls:
        raise ValueError(f"layer {layer} was not called while the model ran; name one that is")
    with torch.no_grad():
        args, kwargs = calls[0]
        return trace(attention, *args, **kwargs)


def _find(model: nn.Module, layer: int | str) -> nn.Module:
    if isinstance(layer, str):
        names: dict[str, nn.Module] = dict(model.named_modules())
        if layer not in names:
            raise ValueError(f"no layer is called {layer!r}; seen.layers has the names of those with attention")
        return names[layer]
    layers: list[nn.Module] = [module for module in model.modules() if isinstance(module, MultiHeadAttention)]
    if not layers:
        raise ValueError(f"{type(model).__name__} has no regard.MultiHeadAttention to count; give the layer's name")
    if not 0 <= layer < len(layers):
        raise ValueError(f"there is no layer {layer}; this model has layers 0 to {len(layers) - 1}")
    return layers[layer]


def describe_steps(
    steps: Trace, sizes: LayerSizes, text: int, key: str
) -> tuple[list[dict[str, Any]], dict[str, bytes]]:
    """The steps of a trace as JSON, for one text of the batch, and the blocks with their numbers.

    key: blocks are called KEY.0, KEY.1 and so on.
    """
    batch = _batch(steps, sizes)
    described = [_describe(one, sizes, text, batch, "queries" in steps) for one in steps]
    stored: list[tuple[Tensor, dict[str, Any]]] = []  # the numbers of each block, flat, and the step that it is of
    blocks: dict[str, bytes] = {}
    # A tensor with fewer axes is stored, and those with more are read from it: with strides, heads can be split, not joined.
    for document, value in sorted(described, key=lambda pair: pair[1].dim()):
        if value.is_meta or value.is_complex() or value.numel() > MOST:
            continue
        numbers = value.detach().cpu().float()
        if not _read_from(stored, numbers, document):
            name = f"{key}.{len(blocks)}"
            document |= {"block": name, "strides": list(numbers.contiguous().stride())}
            stored.append((numbers.flatten(), document))
            blocks[name] = compress(to_planes(numbers, document["bytes"]))
    return [document for document, _ in described], blocks


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
    return b"".join(
        (bits >> np.uint64(24 - 8 * plane) & np.uint64(255)).astype(np.uint8).tobytes() for plane in range(count)
    )


def _describe(one: Step, sizes: LayerSizes, text: int, batch: int | None, named: bool) -> tuple[dict[str, Any], Tensor]:
    """A step without its numbers, and the tensor of one text. named: the steps are those of a layer of regard."""
    # In code that names no steps, the call torch.transpose is a step called transpose, whatever it is for.
    known = named or one.name in _MAPS or one.name in ("x", "context")
    axes = _axes(one, sizes, batch) if known else _axes_by_size(one.shape, sizes, batch)
    value = one.value
    if axes and axes[0] == "batch":
        value, axes = value[text], axes[1:]
    name, _, which = one.name.partition(" ")
    heads = sizes.Hkv if "keys" in (name, which) or "values" in (name, which) else sizes.H
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
        "strides": [],
    }, value


def _axes(one: Step, sizes: LayerSizes, batch: int | None) -> list[str]:
    """What each axis of a step is: batch, head, query, key, width, or "" where that is not known."""
    shape = one.shape
    name, _, which = one.name.partition(" ")
    whose = "key" if name in ("keys", "values") or which in ("keys", "values") or one.name == "source" else "query"
    part = name if which in ("", "keys", "values") else one.name
    if part in _MAPS:
        first = ["batch", "head"] if len(shape) == 4 else ["batch"] if sizes.H == 1 else ["head"]
        axes = [*first, "query", "key"]
    elif part in _VECTORS or (part in _HEADS_FIRST and len(shape) < 4):
        axes = ["batch", whose, "width"]
    elif part in _HEADS_FIRST:
        axes = ["batch", "head", whose, "width"]
    elif part in _TOKENS_FIRST:
        axes = ["batch", whose, "head", "width"]
    else:
        return _axes_by_size(shape, sizes, batch)
    axes = axes[len(axes) - len(shape) :] if len(shape) <= len(axes) else []
    heads = sizes.Hkv if whose == "key" else sizes.H
    expected = {"head": heads, "query": sizes.T, "key": sizes.S}
    fits = axes and all(expected.get(axis, size) == size for axis, size in zip(axes, shape, strict=True))
    return axes if fits else _axes_by_size(shape, sizes, batch)


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


def _read_from(stored: Sequence[tuple[Tensor, dict[str, Any]]], value: Tensor, document: dict[str, Any]) -> bool:
    """If a stored block has the same numbers, perhaps with two axes swapped, refer to it."""
    swaps = [None, *((i, j) for i in range(value.dim()) for j in range(i + 1, value.dim()))]
    for swap in swaps:
        as_stored = value if swap is None else value.transpose(*swap)
        flat = as_stored.flatten()
        for numbers, first in stored:
            if numbers.shape != flat.shape or first["bytes"] != document["bytes"]:
                continue
            if torch.equal(numbers.view(torch.int32), flat.view(torch.int32)):
                strides = list(as_stored.contiguous().stride())
                if swap is not None:
                    i, j = swap
                    strides[i], strides[j] = strides[j], strides[i]
                document |= {"block": first["block"], "strides": strides}
                return True
    return False

"""Tracing one attention layer of a model, with the input that it gets there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from regard.attention.layer import MultiHeadAttention
from regard.traces.trace import Trace, trace


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


def trace_layers(model: nn.Module, inputs: Mapping[str, Any], layers: Iterable[int]) -> dict[int, Trace]:
    """The traces of these layers of a model of regard, by their numbers; inputs: keyword arguments of its forward.

    >>> import regard
    >>> model = regard.GPT("tiny").eval()
    >>> list(trace_layers(model, {"ids": torch.tensor([[5, 6, 7]])}, [1, 4]))
    [1, 4]
    """
    return {layer: trace_layer(model, layer, **inputs) for layer in layers}

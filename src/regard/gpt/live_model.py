"""What a page needs to run a model itself: its operations, weights and tokenizer, and a trace of each layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from regard.gpt.block import Product
from regard.gpt.model import GPT
from regard.gpt.portable import portable
from regard.gpt.tokenizer.portable import portable_tokenizer
from regard.support.drawing import as_live
from regard.traces.trace import Trace, trace_layers


class TracedLayer(NamedTuple):
    """One attention layer, traced on a text of this length; windowed: it sees the last tokens only."""

    trace: Trace
    heads: int
    kv_heads: int
    length: int
    windowed: bool


class LiveModel(NamedTuple):
    """plan, weights: of regard.gpt.portable. tokenizer: its tables. layers: None where no trace can be."""

    plan: Mapping[str, Any]
    weights: bytes
    tokenizer: Mapping[str, Any]
    layers: list[TracedLayer | None]


@as_live.register
def live_model(model: GPT) -> LiveModel:
    """The model for a page that runs it.

    >>> [one.length for one in live_model(GPT.from_pretrained("tiny")).layers]
    [11, 11, 11, 11, 11, 11]
    """
    if model.tokenizer is None:
        raise ValueError("a page that runs a model needs its tokenizer; set model.tokenizer, a regard.Tokenizer")
    return LiveModel(*portable(model), portable_tokenizer(model.tokenizer), traced_layers(model))


def traced_layers(model: GPT) -> list[TracedLayer | None]:
    """A trace of each layer, of a text whose length is no other size of the model: shapes say where the length is."""
    layers = [operation.layer for operation in model.operations() if not isinstance(operation, Product)]
    sizes = {size for parameter in model.parameters() for size in parameter.shape}
    sizes |= {n for one in layers for n in (one.num_heads, one.num_kv_heads, one.head_dim)}
    length = next((n for n in range(11, model.config.context_length) if n not in sizes), None)
    if length is None:
        return [None] * len(layers)
    ids = torch.arange(length)[None] % model.config.vocab_size
    with torch.no_grad():
        traces = trace_layers(model, {"ids": ids}, range(len(layers)))
    return [
        TracedLayer(traces[number], one.num_heads, one.num_kv_heads, length, one.window is not None)
        for number, one in enumerate(layers)
    ]

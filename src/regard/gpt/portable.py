"""A model for programs that are not Python: its operations as JSON, its weights as a safetensors file.

The page runs a model in the browser from this (show/page/js/live/engine.js). It is made from `GPT.operations()`, as the
decoders of generate/ are, so that the block is described once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from safetensors.torch import save
from torch import Tensor, nn

from regard.attention.layer import MultiHeadAttention
from regard.gpt.block import LinearWeights, Product
from regard.gpt.model import GPT

PLAN_FORMAT = 1


class PortableModel(NamedTuple):
    """plan: what to compute, JSON values in which a tensor is its name. weights: these tensors, a safetensors file."""

    plan: dict[str, Any]
    weights: bytes


def portable(model: GPT) -> PortableModel:
    """The model's operations and weights. Weights are in float16 where that changes none of them.

    >>> portable(GPT("tiny")).plan["operations"][1]["heads"]
    8
    """
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    plan = {
        "format": PLAN_FORMAT,
        "vocabulary": model.config.vocab_size,
        "context": model.config.context_length,
        "width": model.config.d_model,
        "ends": list(model.config.ends),
        "tokens": names[id(model.token_embedding.weight)],
        "positions": None if model.position_embedding is None else names[id(model.position_embedding.weight)],
        "operations": [
            _product(operation, names) if isinstance(operation, Product) else _attend(operation.layer, names)
            for operation in model.operations()
        ],
    }
    return PortableModel(plan, save(_stored(dict(model.named_parameters()))))


def _product(operation: Product, names: dict[int, str]) -> dict[str, Any]:
    return {
        "kind": "product",
        "norm": None if operation.norm is None else _norm(operation.norm, names),
        "weights": [_linear(weights, names) for weights in operation.weights],
        "activation": None if operation.activation is None else operation.activation.name,
        "gate": None if operation.gate is None else _linear(operation.gate, names),
        "residual": operation.residual,
    }


def _attend(layer: MultiHeadAttention, names: dict[int, str]) -> dict[str, Any]:
    if layer.alibi or not layer.causal:
        raise ValueError(
            f"a layer with alibi={layer.alibi}, causal={layer.causal} cannot run outside Python; "
            "what can is causal attention with learned or rotary positions"
        )
    norms = {"query_norm": layer.q_norm, "key_norm": layer.k_norm}
    return {
        "kind": "attend",
        "heads": layer.num_heads,
        "kv_heads": layer.num_kv_heads,
        "head_dim": layer.head_dim,
        "scale": layer.head_dim**-0.5 if layer.scale is None else layer.scale,
        "window": layer.window,
        "rotary": None
        if layer.rotary is None
        else {"waves": layer.rotary.waves(layer.head_dim).tolist(), "interleaved": layer.rotary.interleaved},
        **{key: None if norm is None else _norm(norm, names) for key, norm in norms.items()},
    }


def _norm(norm: nn.LayerNorm | nn.RMSNorm, names: dict[int, str]) -> dict[str, Any]:
    bias = getattr(norm, "bias", None)
    return {
        "kind": "rms" if isinstance(norm, nn.RMSNorm) else "layer",
        "weight": names[id(norm.weight)],
        "bias": None if bias is None else names[id(bias)],
        "eps": norm.eps,
    }


def _linear(linear: LinearWeights, names: dict[int, str]) -> dict[str, Any]:
    bias = None if linear.bias is None else names[id(linear.bias)]
    return {"weight": names[id(linear.weight)], "bias": bias}


def _stored(parameters: dict[str, Tensor]) -> dict[str, Tensor]:
    """Contiguous copies on the CPU, in float16 if all of them can be."""
    tensors = {name: parameter.detach().cpu().contiguous() for name, parameter in parameters.items()}
    halves = {name: tensor.half() for name, tensor in tensors.items()}
    return halves if all(torch.equal(halves[name].to(t.dtype), t) for name, t in tensors.items()) else tensors

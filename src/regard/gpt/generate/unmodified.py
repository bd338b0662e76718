"""Is a model as GPT built it, with no hooks and no observers? Only then may a decoder skip its modules.

A decoder that skips modules must not skip what others attached to them: hooks, adapters, parametrizations, a replaced
forward, a larger vocabulary. If there is any of these, the modules themselves are called.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.modules import module as _global_hooks

from regard.attention.layer import MultiHeadAttention
from regard.attention.observers import is_observed
from regard.gpt.block import Block, FeedForward, GatedFeedForward, make_norm
from regard.gpt.config import GPTConfig
from regard.steps import tracing

if TYPE_CHECKING:
    from regard.gpt.model import GPT

# The classes of modules inside a GPT.
_CLASSES = (
    Block, MultiHeadAttention, FeedForward, GatedFeedForward,
    nn.ModuleList, nn.Linear, nn.Embedding, nn.LayerNorm, nn.RMSNorm, nn.Dropout,
)  # fmt: skip
_METHODS = ("forward", "hidden", "score")
# The attributes, besides parameters, that a forward pass depends on.
_SETTINGS = {
    MultiHeadAttention: ("num_heads", "num_kv_heads", "head_dim", "causal", "window", "rotary", "alibi", "scale"),
    FeedForward: ("kind",),
    GatedFeedForward: ("kind",),
    nn.LayerNorm: ("eps",),
    nn.RMSNorm: ("eps",),
    nn.Embedding: ("max_norm",),
}


def is_unmodified(model: GPT) -> bool:
    """Is every module the one that GPT builds, without hooks, and are all parameters of one dtype on one device?

    >>> from regard.gpt import GPT
    >>> model = GPT("tiny")
    >>> is_unmodified(model)
    True
    >>> handle = model.blocks[3].register_forward_hook(print)
    >>> is_unmodified(model)
    False
    """
    if model.is_subclassed or _is_hooked(model):
        return False
    if not all(type(part) in _CLASSES and not _is_hooked(part) for part in model.modules() if part is not model):
        return False
    first = model.token_embedding.weight
    return _matches_config(model) and all(
        type(p) is nn.Parameter and p.dtype is first.dtype and p.device == first.device for p in model.parameters()
    )


def model_fingerprint(model: GPT) -> list[object]:
    """Everything that `is_unmodified` depends on, and the addresses of the weights; no reference to the model.

    Comparing two fingerprints is much faster than `is_unmodified`: equal ones mean that the model has not changed,
    except for the values of its weights.

    >>> from regard.gpt import GPT
    >>> model = GPT("tiny")
    >>> first = model_fingerprint(model)
    >>> first == model_fingerprint(model)
    True
    >>> model.blocks[3].attention.scale = 0.5
    >>> first == model_fingerprint(model)
    False
    """
    parts: list[object] = [model.config]
    for module in model.modules():
        state = module.__dict__
        parts += (type(module), len(state["_forward_hooks"]), len(state["_forward_pre_hooks"]), *state["_modules"])
        parts += [state.get(name) for name in _SETTINGS.get(type(module), ())]
        parts += [name for name in _METHODS if name in state]
        for p in state["_parameters"].values():
            parts += () if p is None else (type(p), p.data_ptr(), p.dtype, p.device, p.shape, p.stride())
    return parts


def needs_module_calls() -> bool:
    """Is there a trace, an attention observer (regard.watch) or a global module hook? They see only module calls."""
    return bool(
        tracing()
        or is_observed()
        or nn.Module.__call__ is not nn.Module._wrapped_call_impl
        or _global_hooks._global_forward_hooks
        or _global_hooks._global_forward_pre_hooks
    )


def _is_hooked(module: nn.Module) -> bool:
    """Has the module hooks, or a method that was replaced on the instance?"""
    return bool(module._forward_hooks or module._forward_pre_hooks or any(name in module.__dict__ for name in _METHODS))


def _matches_config(model: GPT) -> bool:
    """Has every module the sizes and settings of the config?"""
    config = model.config
    block, final_norm = _expected_structure(config)
    tokens, positions = (config.vocab_size, config.d_model), (config.context_length, config.d_model)
    tables = ((model.token_embedding, tokens), (model.position_embedding, None if config.rotary else positions))
    return (
        all(_structure(part) == block for part in model.blocks)
        and _structure(model.final_norm) == final_norm
        and all((None if t is None else tuple(t.weight.shape)) == size for t, size in tables)
        and all(t is None or t.max_norm is None for t, _ in tables)
        and tuple(model.head_weight.shape) == tokens
    )


@lru_cache(maxsize=8)
def _expected_structure(config: GPTConfig) -> tuple[list[Any], list[Any]]:
    """The structure of a block and of the final norm of such a model."""
    with torch.device("meta"):
        return _structure(Block(config)), _structure(make_norm(config))


def _structure(root: nn.Module) -> list[Any]:
    """Classes, settings and parameter shapes of a module and all its submodules."""
    return [
        (
            type(module),
            [module.__dict__[name] for name in _SETTINGS.get(type(module), ())],
            [(name, None if p is None else p.shape) for name, p in module._parameters.items()],
        )
        for module in root.modules()
    ]

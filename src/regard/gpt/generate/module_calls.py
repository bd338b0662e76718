"""Is a model as GPT built it, with no hooks and no observers? Only then may a decoder skip its modules.

A decoder that skips modules must not skip what others attached to them: hooks, adapters, parametrizations, a replaced
forward, a larger vocabulary. If there is any of these, the modules themselves are called.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

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

# The attributes, besides parameters, that a forward pass depends on.
_SETTINGS = {
    MultiHeadAttention: ("num_heads", "num_kv_heads", "head_dim", "causal", "window", "rotary", "alibi", "scale"),
    FeedForward: ("kind",),
    GatedFeedForward: ("kind",),
    nn.LayerNorm: ("eps",),
    nn.RMSNorm: ("eps",),
    nn.Embedding: ("max_norm",),
}
_METHODS = ("forward", "hidden", "score")  # none of them may be replaced on the instance


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
    _, replaced_methods, hooks, *_ = _describe(model)
    if model.is_subclassed or replaced_methods or hooks:
        return False
    block, around = _expected(model.config)
    first = model.token_embedding.weight
    return (
        {name: _structure(part) for name, part in model.named_children() if name != "blocks"} == around
        and all(_structure(part) == block for part in model.blocks)
        and all(
            type(p) is nn.Parameter and p.dtype is first.dtype and p.device == first.device for p in model.parameters()
        )
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
    weights = [(type(p), p.data_ptr(), p.dtype, p.device, p.stride()) for p in model.parameters()]
    return [model.config, _structure(model), weights]


def needs_module_calls(model: nn.Module | None = None) -> bool:
    """Is there a trace, an attention observer (regard.watch), a global module hook, or a hook on this module?

    They see only module calls.
    """
    return bool(
        tracing()
        or is_observed()
        or nn.Module.__call__ is not nn.Module._wrapped_call_impl
        or _global_hooks._global_forward_hooks
        or _global_hooks._global_forward_pre_hooks
        or (model is not None and (model._forward_hooks or model._forward_pre_hooks))
    )


def _describe(module: nn.Module) -> tuple[object, ...]:
    """Class, replaced methods, hooks, settings, names of submodules, and names and shapes of parameters."""
    state, kind = module.__dict__, type(module)
    return (
        kind,
        [name for name in _METHODS if name in state],
        len(state["_forward_hooks"]) + len(state["_forward_pre_hooks"]),
        [state.get(name) for name in _SETTINGS.get(kind, ())],
        [*state["_modules"]],
        [(name, None if p is None else p.shape) for name, p in state["_parameters"].items()],
    )


def _structure(root: nn.Module) -> list[object]:
    return [_describe(module) for module in root.modules()]


@lru_cache(maxsize=8)
def _expected(config: GPTConfig) -> tuple[list[object], dict[str, list[object]]]:
    """The structure of a block of such a model, and of each module around the blocks."""
    V, T, E = config.vocab_size, config.context_length, config.d_model
    with torch.device("meta"):
        around = {
            "token_embedding": nn.Embedding.from_pretrained(torch.empty(V, E)),
            "position_embedding": nn.Embedding.from_pretrained(torch.empty(T, E)) if config.rotary is None else None,
            "dropout": nn.Dropout(),
            "final_norm": make_norm(config),
            "head": None if config.tied else nn.Linear(E, V, bias=False),
        }
        return _structure(Block(config)), {name: _structure(part) for name, part in around.items() if part is not None}

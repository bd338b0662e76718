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
from regard.gpt.block import FeedForward, GatedFeedForward
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
    kinds = {(type(p), p.dtype, p.device) for p in model.parameters()}
    plain = next(one for one in type(model).__mro__ if one.__module__ == "regard.gpt.model")  # GPT, not a subclass
    return _structure(model) == _built(plain, model.config) and len(kinds) == 1 and next(iter(kinds))[0] is nn.Parameter


def model_fingerprint(model: GPT) -> list[object]:
    """Everything that `is_unmodified` depends on, and the addresses of the weights; no reference to the model.

    If two are equal, the model has not changed, except for the values of its weights.

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


@lru_cache(maxsize=8)
def _built(plain: type[GPT], config: GPTConfig) -> list[object]:
    """The structure of a new model of this config."""
    with torch.device("meta"):
        return _structure(plain(config))


def _structure(model: GPT) -> list[object]:
    """For every module its class, replaced methods, hooks, settings, and names and sizes of parts."""
    parts: list[object] = []
    for module in model.modules():
        state, kind = module.__dict__, type(module)
        parts += (kind, len(state["_forward_hooks"]) + len(state["_forward_pre_hooks"]), *state["_modules"])
        parts += [name for name in _METHODS if name in state]
        parts += [state.get(name) for name in _SETTINGS.get(kind, ())]
        parts += [(name, None if p is None else p.shape) for name, p in state["_parameters"].items()]
    return parts

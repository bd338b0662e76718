"""Is a model still as GPT built it, and does nobody listen? Only then may something faster stand for its modules.

Whatever skips the modules must not skip what others made of them: hooks, adapters, parametrizations, a forward of
somebody's own, a wider vocabulary. Where there is any of it, the modules themselves are called.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as _everywhere

from regard.attention.layer import MultiHeadAttention
from regard.attention.observers import is_observed
from regard.gpt.block import Block, FeedForward, GatedFeedForward, norm
from regard.gpt.config import GPTConfig
from regard.gpt.model import GPT
from regard.steps import tracing

_KNOWN = (
    GPT, Block, MultiHeadAttention, FeedForward, GatedFeedForward, nn.ModuleList, nn.Linear, nn.Embedding,
    nn.LayerNorm, nn.RMSNorm, nn.Dropout,
)  # fmt: skip
_METHODS = ("forward", "hidden", "score")
# What a forward goes by, besides its parameters.
_SETTINGS = {
    MultiHeadAttention: ("num_heads", "num_kv_heads", "head_dim", "causal", "window", "rotary", "alibi", "scale"),
    nn.LayerNorm: ("eps",),
    nn.RMSNorm: ("eps",),
    nn.Embedding: ("max_norm",),
}


def untouched(model: GPT) -> bool:
    """Is every part the one that GPT builds, of one dtype and on one device, and does nobody listen to it?

    >>> model = GPT("tiny")
    >>> untouched(model)
    True
    >>> handle = model.blocks[3].register_forward_hook(print)
    >>> untouched(model)
    False
    """
    if not all(_quiet(module) for module in model.modules()):
        return False
    first = model.token_embedding.weight
    return _as_told(model) and all(
        type(p) is nn.Parameter and p.dtype is first.dtype and p.device == first.device for p in model.parameters()
    )


def look(model: GPT) -> list[object]:
    """All that `untouched` goes by, and where the weights lie, taken down at once. It holds nothing of the model.

    Two looks that are equal say that the model is what it was, much sooner than `untouched` could.

    >>> model = GPT("tiny")
    >>> first = look(model)
    >>> first == look(model)
    True
    >>> model.blocks[3].attention.scale = 0.5
    >>> first == look(model)
    False
    """
    found: list[object] = [model.config]
    for module in model.modules():
        held = module.__dict__
        found += (type(module), len(held["_forward_hooks"]), len(held["_forward_pre_hooks"]), *held["_modules"])
        found += [held.get(name) for name in _SETTINGS.get(type(module), ())]
        found += [name for name in _METHODS if name in held]
        for p in (*held["_parameters"].values(), *held.get("_rooms", {}).values()):
            found += () if p is None else (type(p), p.data_ptr(), p.dtype, p.device, p.shape, p.stride())
    return found


def looked_at() -> bool:
    """Does anybody look at all that runs: a trace, regard.watch, a hook on every module? Then modules must be called."""
    return bool(
        tracing()
        or is_observed()
        or nn.Module.__call__ is not nn.Module._wrapped_call_impl
        or _everywhere._global_forward_hooks
        or _everywhere._global_forward_pre_hooks
    )


def _quiet(module: nn.Module) -> bool:
    """Is this one of our own modules, and does nobody listen to it? Methods may be replaced on the instance, too."""
    return type(module) in _KNOWN and not (
        module._forward_hooks or module._forward_pre_hooks or any(name in module.__dict__ for name in _METHODS)
    )


def _as_told(model: GPT) -> bool:
    """Has every part the sizes and settings that the config tells?"""
    config = model.config
    block, last = _outlines(config)
    tokens, places = (config.vocab_size, config.d_model), (config.context_length, config.d_model)
    tables = ((model.token_embedding, tokens), (model.position_embedding, None if config.rotary else places))
    return (
        all(_outline(part) == block for part in model.blocks)
        and _outline(model.final_norm) == last
        and all((None if t is None else tuple(t.weight.shape)) == size for t, size in tables)
        and all(t is None or t.max_norm is None for t, _ in tables)
        and tuple(model.head_weight.shape) == tokens
    )


@lru_cache(maxsize=8)
def _outlines(config: GPTConfig) -> tuple[list[Any], list[Any]]:
    """A block's outline and the last norm's, as the config tells."""
    with torch.device("meta"):
        return _outline(Block(config)), _outline(norm(config))


def _outline(whole: nn.Module) -> list[Any]:
    """Types, settings and the shapes of parameters, of a module and all within it."""
    return [
        (
            type(module),
            [module.__dict__[name] for name in _SETTINGS.get(type(module), ())],
            [(name, None if p is None else p.shape) for name, p in module._parameters.items()],
        )
        for module in whole.modules()
    ]

"""Module options: what an attention module says about itself beside its weights, by the names that people use."""

from __future__ import annotations

import inspect
from typing import Any

from torch import nn

from regard.support import vocabulary as words
from regard.traces.failures import explain_failure

# Attributes of a module, or of its config.
HEADS = (*words.HEADS, *words.HEADS_TOO)
_DROPOUT = (*words.ATTENTION_DROPOUT, "dropout")  # the first is that of the weights


def refuse_foreign_options(module: nn.Module) -> None:
    """Raise for options that regard's layer does not have, and for modules that cannot be adopted."""
    if clearer := explain_failure(module):
        raise clearer
    who = type(module).__name__
    if any(p.is_meta for p in module.parameters()):
        raise ValueError(f"{who} is on the meta device, where weights have no values; load its weights first")
    if isinstance(module, nn.MultiheadAttention):
        if module.bias_k is not None:
            raise ValueError(f"{who} was built with add_bias_kv=True, a learned extra key; rebuild it without")
        if module.add_zero_attn:
            raise ValueError(f"{who} was built with add_zero_attn=True, an extra key of zeros; rebuild it without")
        if (module.kdim, module.vdim) != (module.embed_dim, module.embed_dim):
            raise ValueError(
                f"{who} has kdim={module.kdim} and vdim={module.vdim}, but keys and values here are read from the "
                f"queries' width, {module.embed_dim}; project them to {module.embed_dim} first"
            )
    if "position_embeddings" in inspect.signature(module.forward).parameters:
        raise ValueError(
            f"{who} rotates its queries by position_embeddings that its model computes, so it cannot run by itself; "
            "load the whole model with regard.GPT.from_pretrained(…), whose layers are regard's"
        )
    if getattr(module, "is_cross_attention", False) is True:
        raise ValueError(f"{who} has is_cross_attention=True, with weights for two sequences; adopt its self-attention")


def find_number(owners: list[Any], names: tuple[str, ...]) -> int | None:
    """The first whole number among these attributes of the module or its config."""
    values = (getattr(owner, name, None) for owner in owners for name in names)
    return next((n for n in values if isinstance(n, int) and not isinstance(n, bool)), None)


def default_heads(stems: dict[str, str], who: str) -> int:
    """The number of heads of a module that has no attribute for it."""
    if "out_proj" not in stems:
        return 1  # nothing mixes heads: a single-head layer of the textbook
    raise ValueError(
        f"{who} does not say how many heads it has ({', '.join(HEADS[:6])}, …); pass it: adopt(…, num_heads=12)"
    )


def find_dropout(module: Any) -> float:
    """The dropout on the attention weights."""
    attributes = (getattr(module, name, None) for name in _DROPOUT)
    values = (a.p if isinstance(a, nn.Dropout) else a for a in attributes)
    return next((float(p) for p in values if isinstance(p, (int, float)) and not isinstance(p, bool)), 0.0)


def is_gpt2(module: Any) -> bool:
    """Is it transformers' GPT2Attention? Told by name, because transformers is not imported here."""
    return any(c.__name__ == "GPT2Attention" for c in type(module).__mro__)


def gpt2_scale(module: Any) -> float | None:
    """The scale that a GPT2Attention was configured with; None where it is 1/√head_dim."""
    if not is_gpt2(module) or (module.scale_attn_weights and not module.scale_attn_by_inverse_layer_idx):
        return None
    scale = module.head_dim**-0.5 if module.scale_attn_weights else 1.0
    return scale / (module.layer_idx + 1) if module.scale_attn_by_inverse_layer_idx else scale

"""attn_implementation="regard": our entry in the attention registry of transformers.

It is scaled_dot_product_attention as transformers calls it, masks included: as fast, equal bit for bit, and seen by a
watch like any other. A watch does not need it; it is for those who prefer to name the attention in the config.
"""

from __future__ import annotations

import sys
from functools import wraps
from typing import Any

_registered: set[str] = set()  # the names under which it is registered


def register(name: str = "regard") -> None:
    """Make `AutoModel.from_config(config, attn_implementation="regard")` work; may be called repeatedly."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask

    def attention(module: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("s_aux") is not None:
            raise ValueError(_refusal(type(module).__name__, "its sinks have no place in"))
        if any(name.endswith("indices") and value is not None for name, value in kwargs.items()):
            raise ValueError(_refusal(type(module).__name__, "the keys that it chose for each query have no place in"))
        return sdpa_attention_forward(module, *args, **kwargs)

    def mask(*args: Any, **kwargs: Any) -> Any:
        model = _model_of(kwargs.get("config"))
        if model is not None and not getattr(model, "_supports_sdpa", True):
            raise ValueError(_refusal(model.__name__, "transformers does not run it by"))
        return sdpa_mask(*args, **kwargs)

    AttentionInterface.register(name, attention)
    AttentionMaskInterface.register(name, mask)
    _refuse_models_with_their_own_choice(name)


def _refuse_models_with_their_own_choice(name: str) -> None:
    """Some models choose a class by the name of the attention, from a table without ours: say that, not KeyError."""
    from transformers import PreTrainedModel

    _registered.add(name)
    original = PreTrainedModel.get_correct_attn_implementation
    if hasattr(original, "__wrapped__"):
        return

    @wraps(original)
    def get_correct_attn_implementation(self: Any, requested_attention: str | None, *args: Any, **kwargs: Any) -> Any:
        if requested_attention in _registered and (names := _own_choice(type(self), requested_attention)):
            raise ValueError(
                f"{type(self).__name__} cannot run with this attention: it chooses among {', '.join(names)} by itself; "
                f'use attn_implementation="{"sdpa" if "sdpa" in names else "eager"}", which regard.watch(model) sees as well'
            )
        return original(self, requested_attention, *args, **kwargs)

    PreTrainedModel.get_correct_attn_implementation = get_correct_attn_implementation


def _own_choice(model: type, name: str) -> list[str]:
    """The names in the tables of attention classes that the module of the model has, where ours is missing."""
    values = vars(sys.modules[model.__module__]).values()
    tables = [table for table in values if isinstance(table, dict) and isinstance(table.get("eager"), type)]
    return sorted({key for table in tables if name not in table for key in table})


def _model_of(config: Any) -> Any:
    """The model class that transformers builds from a config, if there is one."""
    from transformers import MODEL_MAPPING

    models = MODEL_MAPPING.get(type(config), None)
    return models[0] if isinstance(models, (tuple, list)) else models


def _refusal(what: str, why: str) -> str:
    return (
        f"{what} cannot run with this attention: {why} scaled_dot_product_attention; "
        'use attn_implementation="eager", which regard.watch(model) sees as well'
    )

"""attn_implementation="regard": our entry in the attention registry of transformers.

It is scaled_dot_product_attention as transformers calls it, masks included: as fast, equal bit for bit, and seen by a
watch like any other. A watch does not need it; it is for those who prefer to name the attention in the config.
"""

from __future__ import annotations

from typing import Any


def register(name: str = "regard") -> None:
    """Make `AutoModel.from_config(config, attn_implementation="regard")` work; may be called repeatedly."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask

    def attention(module: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("s_aux") is not None:
            raise ValueError(_refusal(type(module).__name__, "its sinks have no place in"))
        return sdpa_attention_forward(module, *args, **kwargs)

    def mask(*args: Any, **kwargs: Any) -> Any:
        model = _model_of(kwargs.get("config"))
        if model is not None and not getattr(model, "_supports_sdpa", True):
            raise ValueError(_refusal(model.__name__, "transformers does not run it by"))
        return sdpa_mask(*args, **kwargs)

    AttentionInterface.register(name, attention)
    AttentionMaskInterface.register(name, mask)


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

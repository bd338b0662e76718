"""attn_implementation="regard", the way that transformers offers to others.

It is scaled_dot_product_attention as transformers calls it, masks included: as fast, equal bit for bit, and seen by a
watch like any other. A watch needs no such registration; it is for those who prefer to say in the config what runs.
"""

from __future__ import annotations


def register(name: str = "regard") -> None:
    """Make `AutoModel.from_config(config, attn_implementation="regard")` work; again and again does no harm."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(name, sdpa_attention_forward)
    AttentionMaskInterface.register(name, sdpa_mask)

"""Models that mix attention with something else (state spaces, linear attention), or project or choose its keys.

And newer classes, whose attention has gates, norms, sinks, windows or positions of its own.
"""

from __future__ import annotations

from heads.zoo.classes import BOTH, CONVOLUTIONS, PATCHES, Animal, of_images, sound, text, two_texts

NEWER = (
    "afmoe aria_text cohere2_moe cwm doge exaone_moe falcon_h1 flex_olmo glm4_moe gte hy_v3 jais2 laguna llama4_text "
    "mellum minimax_m2 ministral3 modernbert-decoder nanochat solar_open vaultgemma zaya inkling_text granite_swa "
    "ultrabert mimo_v2_flash openai_privacy_filter"
)
INDEXED = {"num_key_value_heads": 4, "index_n_heads": 2, "index_head_dim": 16, "index_topk": 4}


def mixed(name: str, *layers: str, **options: object) -> Animal:
    """Of its two layers, the last is attention."""
    kinds = {"layer_types": list(layers)} if layers else {}
    return Animal(name, text, more={"num_hidden_layers": 2, **kinds, **options}, partial=True)


HYBRIDS = (
    *(Animal(name, text) for name in NEWER.split()),
    *(Animal(name, text, sizes=INDEXED) for name in ("deepseek_v32", "glm_moe_dsa")),  # each query chooses its keys
    *(Animal(name, text, sizes={"num_key_value_heads": 4}) for name in ("glm4_moe_lite", "minicpm3", "youtu")),
    Animal("longcat_flash", text, sizes={"num_key_value_heads": 4, "qk_head_dim": 16}),
    *(mixed(name, "linear_attention", "full_attention") for name in ("qwen3_next", "qwen3_5_text", "olmo_hybrid")),
    mixed("jamba", attn_layer_period=2, attn_layer_offset=1, use_mamba_kernels=False),
    mixed("nemotron_h", layers_block_type=["mamba", "attention"]),
    mixed("recurrent_gemma", block_types=["recurrent", "attention"]),
    Animal(
        "minimax",
        text,
        more={"num_hidden_layers": 2, "layer_types": ["full_attention", "linear_attention"]},
        partial=True,
        refused=("attentions",),
    ),
    Animal("xmod", text, more={"default_language": "en_XX", "languages": ["en_XX"]}),
    *(Animal(name, two_texts, BOTH) for name in ("mvp", "nllb-moe", "seamless_m4t")),
    *(of_images(name) for name in ("dinov2_with_registers", "ijepa", "pixio", "vit_msn", "vitdet", "sam3_vit_model")),
    *(
        Animal(name, sound, PATCHES, can_pad=False, sizes=CONVOLUTIONS)
        for name in ("sew", "sew-d", "unispeech-sat", "wav2vec2-conformer", "data2vec-audio")
    ),
)

"""Models of several texts or images that are as long as one another: the number of tokens does not tell them apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from heads.zoo.classes import (
    BOTH,
    IMAGE,
    LATENTS,
    PATCH,
    PATCHES,
    TEXTS,
    TOKENS,
    Animal,
    Stack,
    ids,
    long_text,
    padded,
    random,
)

OF_IMAGE = (IMAGE // PATCH) ** 2  # patches; most models add a class token
TOWERS_OUT = (Stack("text_model_output.attentions", "input_ids"), Stack("vision_model_output.attentions"))


def text_and_image(length: int, **more: Tensor) -> Callable[[bool], dict[str, Tensor]]:
    """A text of as many tokens as the image has."""

    def inputs(padding: bool) -> dict[str, Tensor]:
        mask = {"attention_mask": padded(length)} if padding else {}
        return {"input_ids": ids(length), "pixel_values": random(TEXTS, 3, IMAGE, IMAGE), **mask, **more}

    return inputs


def text_and_boxes(padding: bool) -> dict[str, Tensor]:
    boxes = {"visual_feats": random(TEXTS, TOKENS, 13), "visual_pos": random(TEXTS, TOKENS, 4)}
    return {"input_ids": ids(), **boxes} | ({"attention_mask": padded()} if padding else {})


def text_and_regions(padding: bool) -> dict[str, Tensor]:
    seen = torch.ones(TEXTS, TOKENS, dtype=torch.long)
    regions = {"visual_embeds": random(TEXTS, TOKENS, 13), "visual_attention_mask": seen}
    return {"input_ids": ids(), "attention_mask": padded() if padding else seen, **regions}


def equal_texts(padding: bool) -> dict[str, Tensor]:
    mask = {"attention_mask": padded()} if padding else {}
    return {"input_ids": ids(), "decoder_input_ids": ids(seed=4), **mask}


def towers(name: str, length: int = OF_IMAGE + 1, **options: Any) -> Animal:
    return Animal(f"{name} of equal lengths", **({"inputs": text_and_image(length), "stacks": TOWERS_OUT} | options))


COMPRESSED = {
    "num_hidden_layers": 2,
    "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 4},
    "layer_types": ["sliding_attention", "heavily_compressed_attention"],
    "mlp_layer_types": ["moe", "moe"],
}
COMPRESSED_SIZES = {"num_key_value_heads": 1, "o_groups": 2, "o_lora_rank": 8, "index_n_heads": 2, "index_head_dim": 8}

TOWERS = (
    *(towers(name) for name in ["clip", "chinese_clip", "metaclip_2", "clipseg", "blip", "altclip", "owlvit", "owlv2"]),
    towers("siglip", OF_IMAGE, more={"text_config": {"projection_size": 32}}, partial=True),
    towers("aimv2", OF_IMAGE, partial=True),
    towers(
        "flava",
        stacks=(
            Stack("text_output.attentions", "input_ids"),
            Stack("image_output.attentions"),
        ),
        partial=True,
    ),
    towers("git", stacks=PATCHES, partial=True, can_pad=False),
    Animal(
        "lxmert of equal lengths",
        text_and_boxes,
        (
            Stack("language_attentions", "input_ids"),
            Stack("vision_attentions"),
            Stack("cross_encoder_attentions", "input_ids", across=True),
        ),
        sizes={"l_layers": 2, "x_layers": 2, "r_layers": 2, "visual_feat_dim": 13, "visual_pos_dim": 4},
        partial=True,
    ),
    Animal(
        "visual_bert of equal lengths",
        text_and_regions,
        (Stack("attentions", with_image=True),),
        sizes={"visual_embedding_dim": 13},
    ),
    *(
        Animal(f"{name} of equal lengths", equal_texts, BOTH)
        for name in [
            "t5",
            "mt5",
            "umt5",
            "bart",
            "mbart",
            "pegasus",
            "marian",
            "blenderbot",
            "m2m_100",
            "plbart",
            "fsmt",
        ]
    ),
    Animal(
        "whisper of equal lengths",
        lambda padding: {"input_features": random(TEXTS, 80, 22), "decoder_input_ids": ids()},
        (Stack("encoder_attentions"), *BOTH[1:]),
        can_pad=False,
        sizes={"max_source_positions": 11},
    ),
    Animal(
        "perceiver of equal lengths",
        lambda padding: {"inputs": random(TEXTS, TOKENS, 32)},
        (Stack("attentions"), Stack("cross_attentions", across=True)),
        can_pad=False,
        sizes=LATENTS | {"num_latents": TOKENS},
    ),
    Animal(
        "t5gemma2",
        equal_texts,
        (Stack("encoder_attentions", "input_ids"),),  # its output has self- and cross-attention apart, which are one
        partial=True,
        double=False,  # rows that see nothing are NaN there
    ),
    Animal(
        "deepseek_v4",
        long_text,
        (Stack("attentions", "input_ids", has_positions=False),),
        sizes=COMPRESSED_SIZES,
        more=COMPRESSED,
    ),
)

"""Models of several texts or images, all as long: where tokens come from cannot be told by their number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from heads.zoo.classes import IMAGE, PATCH, TEXTS, Animal, Stack, ids, padded, random

PATCHES = (IMAGE // PATCH) ** 2


def text_and_image(length: int, **more: Any) -> Callable[[bool], dict[str, Tensor]]:
    """A text of as many tokens as the image has."""

    def inputs(padding: bool) -> dict[str, Tensor]:
        mask = {"attention_mask": padded(length)} if padding else {}
        return {"input_ids": ids(length), "pixel_values": random(TEXTS, 3, IMAGE, IMAGE), **mask, **more}

    return inputs


TOWERS_OUT = (Stack("text_model_output.attentions", "input_ids"), Stack("vision_model_output.attentions"))


def towers(name: str, length: int = PATCHES + 1, **options: Any) -> Animal:
    return Animal(f"{name} of equal lengths", **({"inputs": text_and_image(length), "stacks": TOWERS_OUT} | options))


TOWERS = (
    *(towers(name) for name in ("clip", "chinese_clip", "metaclip_2", "clipseg", "blip", "align", "altclip")),
    towers("siglip", PATCHES, more={"text_config": {"projection_size": 32}}, partial=True),
    towers("owlvit"),
    towers("owlv2"),
    towers("aimv2"),
    towers("groupvit"),
    towers("x_clip"),
    towers("flava"),
    towers("bridgetower"),
)

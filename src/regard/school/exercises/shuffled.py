"""The trained model of the package with its heads in another order, so that no exercise has a head to know by heart."""

from __future__ import annotations

import torch
from torch import nn

from regard.gpt.model import GPT

NAME = "tiny"


def shuffled_tiny(seed: int = 0) -> GPT:
    """The trained model; with a seed other than 0, no head is at its place. The model computes the same.

    >>> shuffled_tiny(0).config.num_heads
    8
    """
    model = GPT.from_pretrained(NAME)
    for layer in range(model.config.num_layers):
        attention = model.get_submodule(f"blocks.{layer}.attention")
        move_heads(attention, head_order(seed, layer, model.config.num_heads))
    return model


def head_order(seed: int, layer: int, num_heads: int) -> list[int]:
    """Which head stands at each place: none at its own, unless the seed is 0.

    >>> head_order(0, 3, 4)
    [0, 1, 2, 3]
    """
    if seed == 0:
        return list(range(num_heads))
    random = torch.Generator().manual_seed(1000 * seed + layer)
    around = torch.randperm(num_heads, generator=random).tolist()  # one circle through all heads
    following = dict(zip(around, around[1:] + around[:1], strict=True))
    return [following[head] for head in range(num_heads)]


@torch.no_grad()
def move_heads(attention: nn.Module, order: list[int]) -> None:
    """Give each place the head of that number: rows of the projections, columns of out_proj."""
    for name in ("W_query", "W_key", "W_value"):
        projection = attention.get_submodule(name)
        for parameter in projection.parameters():
            parameter.copy_(parameter.unflatten(0, (len(order), -1))[order].flatten(0, 1))
    weight = attention.get_submodule("out_proj").get_parameter("weight")
    weight.copy_(weight.unflatten(1, (len(order), -1))[:, order].flatten(1, 2))

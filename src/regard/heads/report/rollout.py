"""Attention rollout (arXiv:2005.00928): how much of each input token is in a token after several layers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from regard.heads.report.record import Record
from regard.heads.report.texts import texts_of
from regard.heads.report.views import Index, index, place, words_to_numbers


@torch.no_grad()
def roll_out(layers: Sequence[tuple[int, Record]], tokens: Index, text: int | None = None) -> Float[Tensor, "B n S"]:
    """The product over layers of ½ · (mean of the heads' weights) + ½ · identity, only the rows of `tokens`.

    layers: with their numbers, from the first to the last. tokens: positions or words. text: of the batch, (1, n, S).
    """
    chosen = [record for _, record in layers]
    sizes = [record.sizes[2:] for record in chosen]
    if any(T != S or size != sizes[0] for size in sizes for T, S in [size]):
        listed = ", ".join(f"{n}: {T} × {S}" for (n, _), (T, S) in zip(layers, sizes, strict=True))
        raise ValueError(
            f"a rollout needs layers in which one text attends to itself, all of one length; these are {listed} "
            "(queries × keys); choose some with layers=[…]"
        )
    B, _, T, _ = chosen[0].sizes
    device = chosen[0].steps[0].call.device
    text = None if text is None else place(text, B, "text", f"there are {B}")
    texts = texts_of(chosen[0])
    rows = index(words_to_numbers(tokens, texts.queries, texts.unknown, text), T, "token", device)
    amounts = torch.zeros(B, len(rows), T, device=device)
    amounts[:, torch.arange(len(rows), device=device), rows] = 1.0
    for record in reversed(chosen):
        amounts = amounts / 2 + record.carry(amounts) / 2
    return amounts if text is None else amounts[text : text + 1]

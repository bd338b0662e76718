"""Prompts: what a person hands in, as rows of token ids; and rows of unequal length, side by side.

A text, several texts, ids, or tensors with a mask: in the end each is a list of ids. In a batch they are padded on the
left, so that all of them end together and the next token is one column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Int
from torch import Tensor

from regard.gpt.config import GPTConfig

if TYPE_CHECKING:
    from regard.gpt.tokenizer import Tokenizer


@dataclass(frozen=True)
class Prompts:
    """Rows of token ids, and in which form they came: as text or ids, one or many."""

    rows: list[list[int]]
    text: bool
    many: bool


def read(prompt: Any, mask: Any, config: GPTConfig, tokenizer: Tokenizer | None) -> Prompts:
    """Rows of ids from a str, a list of them, ids, a list of those, or a tensor (T,) or (B, T) with its mask.

    >>> read([[5, 6], [7]], None, GPTConfig.preset("tiny"), None)
    Prompts(rows=[[5, 6], [7]], text=False, many=True)
    """
    if mask is not None and not isinstance(prompt, Tensor):
        raise ValueError("mask says which tokens of a tensor are real; lists and texts need none, so leave it out")
    if isinstance(prompt, Tensor):
        found = Prompts(_rows(prompt, mask), text=False, many=prompt.dim() == 2)
    elif isinstance(prompt, str):
        found = Prompts(_encoded([prompt], config, tokenizer), text=True, many=False)
    elif not isinstance(prompt, (list, tuple)):
        raise ValueError(f"a prompt must be a text, token ids, or a list of either, not {type(prompt).__name__}")
    elif prompt and all(isinstance(part, str) for part in prompt):
        found = Prompts(_encoded(prompt, config, tokenizer), text=True, many=True)
    elif all(_whole(part) for part in prompt):
        found = Prompts([[int(i) for i in prompt]], text=False, many=False)
    elif all(isinstance(part, (list, tuple)) and all(_whole(i) for i in part) for part in prompt):
        found = Prompts([[int(i) for i in part] for part in prompt], text=False, many=True)
    else:
        kinds = ", ".join(sorted({type(part).__name__ for part in prompt}))
        raise ValueError(f"a list of prompts must be all texts, all ids or all lists of ids, but holds {kinds}")
    return Prompts([_checked(row, config) for row in found.rows], found.text, found.many)


def side_by_side(rows: list[list[int]]) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B"]]:
    """Rows as one tensor, padded on the left, and how many pads each has.

    >>> side_by_side([[5, 6, 7], [8]])
    (tensor([[5, 6, 7],
            [0, 0, 8]]), tensor([0, 2]))
    """
    size = max(map(len, rows))
    starts = [size - len(row) for row in rows]
    return torch.tensor([[0] * n + row for n, row in zip(starts, rows, strict=True)]), torch.tensor(starts)


def _encoded(texts: Sequence[str], config: GPTConfig, tokenizer: Tokenizer | None) -> list[list[int]]:
    if tokenizer is None:
        raise ValueError(
            "this model has no tokenizer to read a text with; give token ids, or set model.tokenizer = Tokenizer.load(…)"
        )
    # What some tokenizers put before every text (Llama's <s>). The text itself is read as text: nothing that it says
    # is taken for a special token.
    before = tokenizer.encode("", special=True)
    before = before[:-1] if before and before[-1] in config.ends else before
    return [before + tokenizer.encode(text) for text in texts]


def _rows(ids: Tensor, mask: Any) -> list[list[int]]:
    if ids.dim() not in (1, 2) or ids.is_floating_point() or ids.dtype is torch.bool:
        raise ValueError(
            f"ids must be whole numbers of shape (T,) or (B, T), but are {str(ids.dtype).removeprefix('torch.')} of "
            f"shape {tuple(ids.shape)}"
        )
    if mask is None:
        found: list[list[int]] = torch.atleast_2d(ids).tolist()
        return found
    mask = torch.as_tensor(mask)
    if mask.shape != ids.shape:
        raise ValueError(
            f"mask has shape {tuple(mask.shape)} but ids have {tuple(ids.shape)}; give True for each real token"
        )
    if mask.dtype is not torch.bool and not bool(((mask == 0) | (mask == 1)).all()):
        raise ValueError("mask must be True or 1 for a real token and False or 0 for padding, and nothing else")
    rows = []
    for number, (row, real) in enumerate(
        zip(torch.atleast_2d(ids).tolist(), torch.atleast_2d(mask).tolist(), strict=True)
    ):
        places = [i for i, kept in enumerate(real) if kept]
        if places and places[-1] - places[0] + 1 != len(places):
            hole = next(i for i in range(places[0], places[-1]) if not real[i])
            raise ValueError(
                f"row {number} of mask has a hole at token {hole}; padding stands before a text or after it, not within"
            )
        rows.append([row[i] for i in places])
    return rows


def _checked(row: list[int], config: GPTConfig) -> list[int]:
    """The row, within the vocabulary and the context; where it is empty, the end of a text before it."""
    outside = next((i for i in row if not 0 <= i < config.vocab_size), None)
    if outside is not None:
        raise ValueError(
            f"token id {outside} is not among this model's {config.vocab_size} (0 to {config.vocab_size - 1}); "
            "was the text tokenised for another model?"
        )
    if len(row) > config.context_length:
        raise ValueError(
            f"{len(row)} tokens do not fit context_length={config.context_length}; "
            f"give a prompt of fewer than {config.context_length}, so that there is room to go on"
        )
    if not row and not config.ends:
        raise ValueError("the prompt is empty, and this model has no end token to start from; give it a token at least")
    return row or [config.ends[0]]


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)

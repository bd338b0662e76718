"""One step of a trace as a matrix: queries by keys, or tokens by channels, for one head."""

from __future__ import annotations

import re
from collections.abc import Sequence

from torch import Tensor

from regard.show.terminal.table import wrapped
from regard.show.terminal.weights import channels_table, marks_legend, weights_table
from regard.traces.lineage import Step
from regard.traces.meanings import MATRICES

_TOKENS_FIRST = {"split", "split keys", "split values", "back"}  # (B, T, H, D); after transpose it is (B, H, T, D)
_HEADS_JOINED = {"queries", "keys", "values", "concat"}  # (B, T, H·D): a head is some of the channels
_MEANINGS = {
    "scores": "A high score: the query matches the key.",
    "mask": "The scores; −∞ where hidden.",
    "scaled": "What the softmax gets.",
    "weights": "Each row sums to 1.",
    "dropout": "In training, some weights are 0.",
}


def heads_of(step: Step) -> int:
    """How many matrices this step has; 1 where heads are not told apart."""
    value = step.value[0] if step.value.dim() > 2 else step.value  # the ladder's first rung has no batch
    return 1 if value.dim() < 3 else value.shape[1 if re.sub(r" \d+$", "", step.name) in _TOKENS_FIRST else 0]


def belongs_to_a_head(step: Step) -> bool:
    """Is the matrix of this step another for each head?"""
    return heads_of(step) > 1 or step.name in _HEADS_JOINED


def matrix_of(step: Step, head: int, text: int = 0) -> Tensor:
    """The matrix of one head and one text; where heads or texts are not told apart, there is one for all."""
    value = step.value[text] if step.value.dim() > 2 else step.value
    if value.dim() == 3:
        value = value[:, head] if re.sub(r" \d+$", "", step.name) in _TOKENS_FIRST else value[head]
    return value


def step_matrix(
    step: Step, tokens: Sequence[str], head: int, heads: int, width: int = 80, digits: int = 2
) -> tuple[str, str]:
    """The matrix of one head as a table, and a legend, both at most `width` columns wide.

    tokens: their labels. head, heads: which head of how many. Of queries, keys, values and concat, which hold all heads
    side by side, the channels of this head are shown; of x and out, which belong to no head, the first channels.
    """
    value = matrix_of(step, head)
    if step.name in MATRICES:
        table = weights_table(value, tokens, tokens, width, digits, zero_is_hidden=step.name in ("weights", "dropout"))
        legend = "Row: the token that looks, its query. Column: the token it looks at, its key."
        hidden = "· is hidden: no token may look at later ones." if "·" in table else ""
        meaning = f"{_MEANINGS.get(step.name, '')} {hidden}".strip()
        return table, _lines(width, legend, meaning, marks_legend(tokens))
    channels = value.shape[1]
    share = channels // heads if step.name in _HEADS_JOINED and heads > 1 else 0
    first, last = (head * share, (head + 1) * share) if share else (0, channels)
    table = channels_table(value[:, first:last], tokens, first, width, digits)
    of_head = f"; {first} to {last - 1} are those of head {head}" if share else ""
    legend = f"Row: a token. Column: one of its {channels} numbers, its channels{of_head}."
    return table, _lines(width, legend, marks_legend(tokens))


def _lines(width: int, *parts: str) -> str:
    return "\n".join(wrapped(part, width) for part in parts if part)

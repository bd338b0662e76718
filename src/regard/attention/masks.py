"""Masks: the rules about positions, and every other kind of mask by its name. True = may attend, everywhere.

`causal() & padding(lengths)` is a rule, not a tensor; mask_algebra.py says what a mask is and how masks combine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.attention.mask_algebra import (
    EVERYTHING,
    And,
    Dense,
    Everything,
    Mask,
    Not,
    Or,
    Padding,
    Parts,
    as_mask,
    dense,
    makes,
    padding,
    take_texts,
    to_four_axes,
)
from regard.support.arguments import describe_tensor, is_integer, list_few

__all__ = ["EVERYTHING", "And", "Dense", "Everything", "Mask", "Not", "Or", "Padding", "Parts"]
__all__ += ["as_mask", "dense", "padding", "take_texts", "to_four_axes"]
__all__ += ["CAUSAL", "Causal", "Documents", "Window", "causal", "documents", "key_padding", "window"]


@dataclass(frozen=True, repr=False, eq=False)
class Causal(Mask):
    """The future is hidden."""

    def tile(self, rows: Int[Tensor, "T"], cols: Int[Tensor, "S"], shift: int) -> Bool[Tensor, "..."]:
        return cols <= rows[:, None] + shift

    def span(self, first: int, last: int, size: int) -> tuple[int, int]:
        return 0, min(max(last + 1, 0), size)

    def parts(self) -> Parts:
        return _CAUSAL_PARTS


@dataclass(frozen=True, repr=False, eq=False)
class Window(Mask):
    """Only keys nearer than `size` places, to either side; with causal() the last `size` keys, oneself included."""

    size: int

    def tile(self, rows: Int[Tensor, "T"], cols: Int[Tensor, "S"], shift: int) -> Bool[Tensor, "..."]:
        return (rows[:, None] + shift - cols).abs() < self.size

    def span(self, first: int, last: int, size: int) -> tuple[int, int]:
        return max(first - self.size + 1, 0), min(max(last + self.size, 0), size)

    def parts(self) -> Parts:
        return Parts(window=self.size)

    @property
    def name(self) -> str:
        return f"window({self.size})"


@dataclass(frozen=True, repr=False, eq=False)
class Documents(Mask):
    """Several documents packed into one row: each token sees only its own. `ids` is (S,) or (B, S)."""

    ids: Tensor

    def tile(self, rows: Int[Tensor, "T"], cols: Int[Tensor, "S"], shift: int) -> Bool[Tensor, "..."]:
        ids: Tensor = torch.atleast_2d(self.ids).to(rows.device)
        return (ids[:, rows + shift, None] == ids[:, None, cols])[:, None]

    def in_order(self, order: Int[Tensor, "B"], T: int, S: int) -> Mask:
        return self if self.ids.dim() == 1 else Documents(take_texts(self.ids, order))

    def check(self, B: int, H: int, T: int, S: int) -> None:
        batch, ids = torch.atleast_2d(self.ids).shape
        if ids != S or T > S:
            raise ValueError(f"documents names {ids} tokens but there are S={S} keys and T={T} queries; name every key")
        if batch not in (1, B):
            remedy = "give one row for each, or one for all"
            raise ValueError(f"documents is for a batch of {batch} but x has B={B}; {remedy}")

    def _sizes(self) -> tuple[int, int]:
        return self.ids.shape[-1], self.ids.shape[-1]

    @property
    def name(self) -> str:
        return f"documents({list_few(torch.atleast_2d(self.ids)[0])})"


CAUSAL = Causal()
_CAUSAL_PARTS = Parts(causal=True)  # made once: attend() asks at every call


@makes(Causal)
def causal() -> Mask:
    """Hide the future: each query sees itself and what came before."""
    return CAUSAL


@makes(Window)
def window(size: int) -> Mask:
    """Hide what is `size` or more places away; `causal() & window(4096)` is Mistral's sliding window."""
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ValueError(f"window ({size}) must be a whole number of at least 1; 1 sees only oneself")
    return Window(size)


@makes(Documents)
def documents(ids: Tensor | Sequence[int]) -> Mask:
    """Keep packed documents apart: tokens attend only within the same id.

    >>> documents([0, 0, 1]).dense(3)[0, 0]
    tensor([[ True,  True, False],
            [ True,  True, False],
            [False, False,  True]])
    """
    tensor = ids if isinstance(ids, Tensor) else torch.tensor(list(ids), dtype=torch.long)
    if not is_integer(tensor) or tensor.dim() not in (1, 2):
        raise ValueError(f"documents takes whole ids of shape (S,) or (B, S); this is {describe_tensor(tensor)}")
    return Documents(tensor)


def key_padding(keys: Tensor, S: int, device: torch.device) -> Tensor:
    """(B or 1, S) bool: which keys are real, given as bool (B, S) or as lengths (B,)."""
    places = torch.arange(S, device=device)
    return Padding(keys).tile(places[:1], places, 0)[:, 0, 0]

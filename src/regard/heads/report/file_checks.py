"""What files of this room share: texts as plain values, and checks of what a header says."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors
import torch
from torch import Tensor

from regard.support.printable import printable, readable
from regard.support.tokens import TextTokens, is_part

MOST_HEADS = 65_536  # of a layer
_LONGEST, _LONGEST_TOKEN = 500, 10_000  # characters of a name, and of a token
_UNBACKED = 1 << 22  # numbers that a report may have beyond the size of its file, where a mask is the same in all heads
_SCORES, _FEW_SCORES = 1 << 13, 1 << 30  # for each byte of a file, and always; a head of 64 has T / 256 for each byte
_CELLS, _FEW_CELLS = 8, 1 << 24  # a mask is stored eight cells to a byte; reports say how many keys are visible
_AT_A_TIME = 1 << 20  # numbers that are checked
_DTYPES = {  # without those that torch computes little with, such as float8 and uint64
    "numbers": (torch.float64, torch.float32, torch.float16, torch.bfloat16),
    "whole numbers": (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8),
    "true or false": (torch.bool,),
}
_TYPES = {"real": "true or false", "tokens": "whole numbers"}  # of the tensors of a call; of all others, numbers


class Unfit(Exception):
    """Why a file is refused."""


def require(fits: bool, why: str) -> None:
    """Refuse the file unless it fits."""
    if not fits:
        raise Unfit(why)


@contextmanager
def file_named(path: Path) -> Iterator[None]:
    """Inside this block, whatever is wrong with a file is a ValueError that names it."""
    try:
        yield
    except safetensors.SafetensorError as error:
        why = readable(error, 160)
        raise ValueError(f"{path} is damaged or no safetensors file ({why}). Nothing was loaded.") from None
    except Unfit as error:
        raise ValueError(f"{path}: {error}. Nothing was loaded.") from None


@contextmanager
def damage_refused(what: str) -> Iterator[None]:
    """Inside this block, a text with other values than it should have is Unfit; what: the sentence that says so."""
    try:
        yield
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RuntimeError) as error:
        raise Unfit(f"{what} ({type(error).__name__}: {readable(error, 160)})") from None


def whole_number(value: Any, what: str, most: int = (1 << 63) - 1) -> int:
    """A size, or the number of something.

    >>> whole_number(-1, "T")
    Traceback (most recent call last):
    regard.heads.report.file_checks.Unfit: T is -1, no size
    """
    is_size = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most
    require(is_size, f"{what} is {readable(repr(value))}, no size")
    return int(value)


def short_text(value: Any) -> bool:
    """Is it a name, or a line of text, that can be printed?"""
    return isinstance(value, str) and len(value) <= _LONGEST and printable(value) == value


def check_sizes(name: str, sizes: Mapping[str, int], size: int) -> None:
    """A call cannot have many more rows and keys than its file has bytes."""
    for axis in "TS":
        count = math.prod(max(sizes[one], 1) for one in ("B", "H", axis))
        claimed = f"{sizes['B']:,} texts, {sizes['H']:,} heads and {sizes[axis]:,} tokens"
        require(count <= size + _UNBACKED, f"{name}: {claimed} are more than a file of {size:,} bytes can hold")


class Work:
    """What reading a report may make this computer compute: bounded by the size of its file, summed over its calls."""

    def __init__(self, size: int) -> None:
        self.size, self.scores, self.cells = size, 0, 0

    def add(self, name: str, scores: int, cells: int = 0) -> None:
        """Scores of a call, computed where its weights are asked for; cells of its mask, counted where it is shown."""
        self.scores, self.cells = self.scores + scores, self.cells + cells
        most = f"too many for a file of {self.size:,} bytes"
        require(self.scores <= _SCORES * self.size + _FEW_SCORES, f"{name}: {self.scores:,} weights are {most}")
        require(self.cells <= _CELLS * self.size + _FEW_CELLS, f"{name}: {self.cells:,} cells of masks are {most}")


Extremes = dict[int, tuple[float, float]]  # the least and the largest number of tensors, by id()


def check_parts(name: str, parts: Mapping[str, Tensor], known: Extremes) -> None:
    """The tensors of a call have the types and values that they should have."""
    for part, tensor in parts.items():
        check_dtype(f"{name}: {part}", tensor, _TYPES.get(part, "numbers"))
    if "weights" in parts:
        check_range(f"{name}: weights", parts["weights"], -0.1, 1.1, known)
    if "tokens" in parts:
        check_range(f"{name}: tokens", parts["tokens"], -1, (1 << 32) - 1, known)


def check_dtype(what: str, tensor: Tensor, kind: str) -> None:
    """Does the tensor hold numbers, whole numbers, or values that are true or false?"""
    require(tensor.dtype in _DTYPES[kind], f"{what} must be {kind}, but is {str(tensor.dtype).removeprefix('torch.')}")


def check_range(what: str, tensor: Tensor, least: float | int, most: float | int, known: Extremes) -> None:
    """Is every number in this range? NaN stands for what is not known.

    known: what was found out of tensors, so that one that a file names ten thousand times is read once.
    """
    if id(tensor) not in known:
        known[id(tensor)] = _extremes(tensor)
    for one in known[id(tensor)]:
        if one < least or one > most:
            raise Unfit(f"{what} has {one:g}, which is not between {least:g} and {most:g}")


def _extremes(tensor: Tensor) -> tuple[float, float]:
    low, high = math.inf, -math.inf
    for part in tensor.flatten().split(_AT_A_TIME):
        numbers = part.double()
        numbers = numbers[~numbers.isnan()]
        if numbers.numel():
            low, high = min(low, float(numbers.min())), max(high, float(numbers.max()))
    return (low, high) if low <= high else (math.nan, math.nan)


def plain_text(text: TextTokens) -> dict[str, Any]:
    """A text as JSON has it."""
    return {"pieces": text.pieces, "continues": text.continues, "padding": text.padding, "parts": text.parts}


def text_of_plain(text: dict[str, Any]) -> TextTokens:
    """A text from what plain_text() made of it.

    >>> text_of_plain(plain_text(TextTokens(["The", " cat"])))
    TextTokens(['The', ' cat'])
    """
    pieces, parts = text["pieces"], {int(i): name for i, name in text["parts"].items()}
    flags = [*text["continues"], *text["padding"]]
    plain = all(isinstance(one, str) for one in pieces) and all(one in (True, False) for one in flags)
    named = all(0 <= i < len(pieces) and isinstance(name, str) and is_part(name) for i, name in parts.items())
    require(plain and named, "texts are not lists of tokens")
    longest = max(map(len, pieces), default=0)
    require(longest <= _LONGEST_TOKEN, f"a token has {longest:,} characters; at most {_LONGEST_TOKEN:,} are drawn")
    return TextTokens(pieces, text["continues"], text["padding"], parts)

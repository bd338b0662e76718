"""The wrong layers of `python -m benchmarks check`: right layers as text, and edits that put one mistake into each.

tests/school/check/wrong_layers/ holds them: layers.txt (right layers), mistakes.txt (known mistakes), unknown.txt
(mistakes without a name), published.txt (mistakes in answers to other people's exercises).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from pathlib import Path

HEADER = "import math\nimport torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\n"
# These keep a layer from running, hide what another mistake does, or are rare, so that no pairs of them are tried.
ALONE = (
    *("super().__init__() missing", "view of a non-contiguous tensor", "hard-coded sizes", "mask argument ignored"),
    *("missing root of d_model", "one projection used twice", "scale is a constant", "scores ignored"),
)
# Together they are the same function as the first alone, or the second is not to be seen.
_AXES = ("no causal mask", "hidden scores set to 0", "wrong sign of infinity", "fully masked row gives NaN")
SAME = {
    "softmax over the heads": _AXES,  # what is hidden is hidden in every head, so whatever is written there cancels
    "softmax over the batch": _AXES,
    "softmax over the queries": ("fully masked row gives NaN",),  # no column is all hidden
    "embedding split before projection": ("scale by √d_in",),  # d_in is then d_model
}
_FOLDER = Path(__file__).parents[2] / "tests" / "school" / "check" / "wrong_layers"


@dataclass(frozen=True)
class WrongLayer:
    """A layer with mistakes: their names, the text of its file, and the lines that the edits changed."""

    names: tuple[str, ...]
    layer: str
    source: str
    lines: frozenset[int]


@dataclass(frozen=True)
class SourceEdit:
    """Edits of one layer, each (text, what it becomes)."""

    name: str
    layer: str
    changes: tuple[tuple[str, str], ...]

    def apply(self, source: str) -> str | None:
        """The text with all edits; None where one does not fit."""
        for old, new in self.changes:
            if old not in source:
                return None
            source = source.replace(old, new, 1)
        return source


@cache
def right_layers() -> dict[str, str]:
    """The text of each right layer, as a file."""
    sections = (_FOLDER / "layers.txt").read_text(encoding="utf-8").split("\n@ ")[1:]
    return {name: HEADER + text.rstrip("\n") + "\n" for name, _, text in (s.partition("\n") for s in sections)}


@cache
def read_edits(file: str = "mistakes.txt") -> tuple[SourceEdit, ...]:
    """The edits of a file."""
    edits = []
    for section in (_FOLDER / file).read_text(encoding="utf-8").split("\n# ")[1:]:
        name, _, rest = section.partition("\n")
        for part in rest.split("\n@ ")[1:]:
            layer, _, body = part.partition("\n")
            edits.append(SourceEdit(name, layer, tuple(_changes(body))))
    return tuple(edits)


def _changes(body: str) -> Iterator[tuple[str, str]]:
    for block in body.split("\n\n"):
        old = [line[2:] for line in block.splitlines() if line.startswith("- ")]
        new = [line[2:] for line in block.splitlines() if line.startswith("+ ")]
        if old:
            yield ("\n".join(old), "\n".join(new)) if new else ("\n".join(old) + "\n", "")


def wrong_layers(file: str = "mistakes.txt") -> list[WrongLayer]:
    """Every mistake in every layer that has an edit for it."""
    return [_wrong([edit]) for edit in read_edits(file)]


def pairs() -> list[WrongLayer]:
    """Every two mistakes that can be made together in one layer, as far as both edits fit."""
    edits = [edit for edit in read_edits() if edit.name not in ALONE]
    chosen = [(a, b) for a, b in combinations(edits, 2) if a.layer == b.layer and are_compatible(a.name, b.name)]
    return [_wrong([a, b]) for a, b in chosen if _fits(a, b)]


def are_compatible(a: str, b: str) -> bool:
    """Can both be seen? Two mistakes about one mask, one dropout or one output projection cannot."""
    if a == b or any({a, b} == {x, y} for x, ys in SAME.items() for y in ys):
        return False
    about = ("mask", "dropout", "output projection", "scale", "softmax over", "merge", "infinity", "1e9", "context")
    masks = ("mask", "infinity", "1e9", "context", "hidden", "made on the CPU", "cache")
    if any(word in a for word in masks) and any(word in b for word in masks):
        return False
    return not any(word in a and word in b for word in about) and not ("missing root" in a + b and "scale" in a + b)


def _fits(a: SourceEdit, b: SourceEdit) -> bool:
    source = right_layers()[a.layer]
    first = a.apply(source)
    both = b.apply(first) if first is not None else None
    second = b.apply(source)
    other = a.apply(second) if second is not None else None
    return both is not None and both == other  # else one edit has taken the place of the other


def _wrong(edits: Sequence[SourceEdit]) -> WrongLayer:
    source = right_layers()[edits[0].layer]
    changed: str | None = source
    for edit in edits:
        changed = edit.apply(changed or "")
    if changed is None:
        raise ValueError(f"an edit of {edits[0].layer} for {edits[0].name} does not fit its text")
    return WrongLayer(tuple(e.name for e in edits), edits[0].layer, changed, frozenset(_lines(source, changed)))


def _lines(before: str, after: str) -> Iterator[int]:
    """The lines that differ, with the line below them; around a deletion, the line above as well."""
    for tag, _, _, first, last in difflib.SequenceMatcher(None, before.splitlines(), after.splitlines()).get_opcodes():
        if tag != "equal":
            yield from range(first + (tag != "delete"), last + 2)

"""Where the rows of a tensor come from, and how those of two tensors belong together (followed by row_origin.py)."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

LOST = -1  # a source of what was computed by something that is not followed
MOST = 6  # row spaces that are kept of a tensor: residual streams collect one in every layer


class Relation(Enum):
    """How the rows of two tensors belong together."""

    SAME = "row i of both is the same token"
    OTHER = "their tokens are those of different arguments"
    UNKNOWN = "neither is proven"


class Related(NamedTuple):
    """How the queries of a call belong to its keys, and to the text of its module; None where nothing is followed."""

    keys: Relation | None = None
    to_text: Relation | None = None

    @property
    def is_other_text(self) -> bool:
        """Are the queries those of another text, for certain?"""
        return self.to_text is Relation.OTHER


UNRELATED = Related()


class RowOrigin(NamedTuple):
    """Where the rows of a tensor come from; of scores and weights also where their columns do."""

    rows: frozenset[int] = frozenset()  # row spaces: row i of the tensor is row i of each of them
    sources: frozenset[int] = frozenset()  # the first row spaces that they are made of: of arguments, or constants
    keys: RowOrigin | None = None
    length: int | None = None  # how many rows there are, where that is known

    def merged(self, other: RowOrigin) -> RowOrigin:
        """Row i is computed from row i of both."""
        keys = self.keys.merged(other.keys) if self.keys and other.keys else self.keys or other.keys
        rows = self.rows | other.rows
        rows = rows if len(rows) <= MOST else frozenset(sorted(rows)[:MOST])
        return RowOrigin(rows, self.sources | other.sources, keys, self.length or other.length)

"""A forward: the records of all layers in one run of a model, and whether it continues the run before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from regard.heads.calls.same_keys import texts_of_before
from regard.heads.report.record import Record

Slot = tuple[str, int]  # a layer: the module it ran in, and how often that module had run before in this forward


@dataclass
class Forward:
    """One run of the model, or a whole generation: the records of its layers, in the order in which they ran."""

    number: int
    records: dict[Slot, Record] = field(default_factory=dict)

    def rows_in(self, other: Forward) -> list[int] | None:
        """If this is the next step of that one's generation: the row that each text has there. None if it is not.

        It is where every layer ran before with the same batch and heads, and where all keys of before are proven to be
        the same: the last ones that the layer had, followed by those of the new queries (a sliding window drops old
        ones), or all of them (cross-attention). In beam search a text may continue that of another row.
        """
        same, grew, single = None, False, True
        for slot, record in self.records.items():
            if slot not in other.records:
                return None
            new, old = record.call(0), other.records[slot].call(-1)
            B, H, T, S = new.sizes
            old_B, old_H, _, old_S = old.sizes
            if (old_B, old_H) != (B, H) or new.origin.extra or new.origin.across is not old.origin.across:
                return None
            across = new.origin.across
            if not across and not T < S <= old_S + T:
                return None
            grows = None if across else texts_of_before(old, new, S - T)
            rows = grows if grows is not None or old_S != S else texts_of_before(old, new, S, same=True)
            same = rows if same is None or rows is None else same & rows
            if rows is None or same is None or not bool(same.any(1).all()):
                return None
            grew, single = grew or grows is not None, single and T == 1
        if same is None or not (grew or single):
            return None
        return [i if row[i] else row.index(True) for i, row in enumerate(same.tolist())]

    def append(self, later: Forward, rows: Sequence[int]) -> None:
        """Add the queries of the later forward after these; rows: the row that each of its texts has here."""
        self.number = later.number
        order = None if list(rows) == list(range(len(rows))) else torch.tensor(rows)
        for slot, record in later.records.items():
            for step in record.steps:
                self.records[slot].append(step, order)

    def settle(self) -> None:
        """Put the texts of all steps into the order of the last."""
        for record in self.records.values():
            record.settle()


def in_slots(records: Sequence[Record]) -> dict[Slot, Record]:
    """The records of one forward, in order, by module and by how often it had run before."""
    slots: dict[Slot, Record] = {}
    times: Counter[str] = Counter()
    for record in records:
        slots[record.name, times[record.name]] = record
        times[record.name] += 1
    return slots

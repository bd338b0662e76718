"""A forward: the records of all layers in one run of a model, and whether it continues the run before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from regard.heads.record import Record

Slot = tuple[str, int]  # a layer: the module it ran in, and how often that module had run before in this forward


@dataclass
class Forward:
    """One run of the model, or a whole generation: the records of its layers, in the order in which they ran."""

    number: int
    records: dict[Slot, Record] = field(default_factory=dict)

    def continues(self, other: Forward) -> bool:
        """Is this the next step of that one's generation?

        It is where every layer ran before with the same batch and heads; where keys grew by the new queries, or stayed
        (cross-attention; a cache that is full); and where some did grow, or a single query attends to the same keys.
        """
        grew, single = False, True
        for slot, record in self.records.items():
            if slot not in other.records:
                return False
            B, H, T, S = record.steps[0].call.sizes
            old_B, old_H, _, old_S = other.records[slot].steps[-1].call.sizes
            if (old_B, old_H) != (B, H):
                return False
            grows = old_S + T == S and T < S
            if not grows and (old_S < S or (T >= S and old_S != S)):
                return False
            grew, single = grew or grows, single and T == 1 < S
        return grew or (single and any(_same_keys(other.records[slot], new) for slot, new in self.records.items()))

    def append(self, later: Forward) -> None:
        """Add the rows of the later forward after these."""
        self.number = later.number
        for slot, record in later.records.items():
            for step in record.steps:
                self.records[slot].append(step)


def _same_keys(old: Record, new: Record) -> bool:
    """Are these the same keys, in place or moved up by one? Where none were kept, they are taken to be."""
    before, after = old.call(-1).k, new.call(0).k
    if before is None or after is None or before.shape != after.shape or before.shape[3] == 0:
        return True
    return torch.equal(before[:, :, 0], after[:, :, 0]) or torch.equal(before[:, :, 1:], after[:, :, :-1])


def in_slots(records: Sequence[Record]) -> dict[Slot, Record]:
    """The records of one forward, in order, by module and by how often it had run before."""
    slots: dict[Slot, Record] = {}
    times: Counter[str] = Counter()
    for record in records:
        slots[record.name, times[record.name]] = record
        times[record.name] += 1
    return slots

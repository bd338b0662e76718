"""The forwards of a model: its attention calls are measured and collected, and steps of a generation are joined."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from regard.attention.call import QK
from regard.heads.calls.basis import FROM_CALL, Fact, How
from regard.heads.calls.call import OwnWeights, WatchedCall
from regard.heads.calls.copies import Copies
from regard.heads.calls.same_keys import texts_of_before
from regard.heads.inputs.pieces import TextReader
from regard.heads.measure import statistics
from regard.heads.measure.registry import DEFAULT, check_collected
from regard.heads.measure.statistics import WaitingCalls
from regard.heads.report.record import Record, RecordedCall, record_call

RECENT = 16  # how many of the latest forwards may be continued
REPEATED = "equal to those of the call before, in the same module; the values may differ"
WEIGHTS_KEPT = 256 * 2**20  # bytes of a model's own weights that are kept by default


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
            new = record.call(0)
            rows, grows = _texts_before(other.records[slot].call(-1), new)
            same = rows if same is None or rows is None else same & rows
            if same is None or not bool(same.any(1).all()):
                return None
            grew, single = grew or grows, single and new.sizes[2] == 1
            record.grew = grows
        if same is None or not (grew or single):
            return None
        return [i if row[i] else row.index(True) for i, row in enumerate(same.tolist())]

    def append(self, later: Forward, rows: Sequence[int]) -> None:
        """Add the queries of the later forward after these; rows: the row that each of its texts has here."""
        self.number = later.number
        order = None if list(rows) == list(range(len(rows))) else torch.tensor(rows)
        for slot, record in later.records.items():
            self.records[slot].grew = record.grew
            for step in record.steps:
                self.records[slot].append(step, order)

    def settle(self) -> None:
        """Put the texts of all steps into the order of the last."""
        for record in self.records.values():
            record.settle()


def _texts_before(old: WatchedCall, new: WatchedCall) -> tuple[Tensor | None, bool]:
    """(B, B) bool: which texts of the old call each new one may continue, None for none; and whether its keys grew."""
    (B, H, T, S), (old_B, old_H, _, old_S), across = new.sizes, old.sizes, new.origin.across
    if (old_B, old_H) != (B, H) or new.origin.extra or across is not old.origin.across:
        return None, False
    if not across and not T < S <= old_S + T:
        return None, False
    grows = None if across else texts_of_before(old, new, S - T)
    if grows is not None or old_S != S:
        return grows, grows is not None
    return texts_of_before(old, new, S, same=True), False


def in_slots(records: Sequence[Record]) -> dict[Slot, Record]:
    """The records of one forward, in order, by module and by how often it had run before."""
    slots: dict[Slot, Record] = {}
    times: Counter[str] = Counter()
    for record in records:
        slots[record.name, times[record.name]] = record
        times[record.name] += 1
    return slots


class Collection:
    """The forwards of a model: steps of a generation are joined into one, other runs stay separate.

    collect: names of statistics; keep: keep queries and keys; reader: reads token ids as texts. As in Seen.
    """

    def __init__(self, collect: Iterable[str] | None, keep: bool | None, reader: TextReader | None = None) -> None:
        self.collect = _collected(collect)
        self.keep = keep
        self._reader = reader
        self._past: list[Forward] = []
        self._open: Forward | None = None
        self._number = -1  # of the forward that is running, and what ran in it so far
        self._layers: set[int] = set()
        self._modules: Counter[str] = Counter()
        self._copies = Copies()
        self._waiting = WaitingCalls()
        self._weights_kept = 0

    @property
    def _forwards(self) -> list[Forward]:
        """Everything that ran so far."""
        self._close()
        for forward in self._past:
            forward.settle()
        return self._past

    @torch.no_grad()
    def add(self, forward: int, layer: int, call: WatchedCall) -> None:
        """Keep of a call what was asked for, and measure it: now, or soon, together with others."""
        if self._number != forward or layer in self._layers:
            self._close()
            self._number, self._layers, self._modules, self._copies = forward, set(), Counter(), Copies()
        self._layers.add(layer)
        keep = self._keeps(call)
        call = self._copies.of_call(call, keep)
        if keep and self._waiting.add(call):
            return
        self.measure()
        if not (keep and self._waiting.add(call)):
            self._record(call, statistics.measure(call, self.collect), keep)

    def drop(self, forward: int, layer: int) -> None:
        """Forget the calls of the forward that is running, from this layer on: a module raised an error."""
        count = sum(number >= layer for number in self._layers) if self._number == forward else 0
        self._layers = {number for number in self._layers if number < layer}
        while count and self._waiting.drop():
            count -= 1
        records = {} if self._open is None else self._open.records
        for _ in range(min(count, len(records))):
            (module, self._modules[module]), record = records.popitem()
            if record.kept and isinstance(attention := record.steps[0].call.attention, OwnWeights):
                self._weights_kept -= attention.weights.nbytes
        self._open = self._open if records else None

    @torch.no_grad()
    def measure(self) -> None:
        """Measure the calls that wait for it."""
        for call, measured in self._waiting.measured(self.collect):
            self._record(call, measured, keep=True)

    def _record(self, call: WatchedCall, measured: dict[str, Tensor], keep: bool) -> None:
        self._open = self._open or Forward(self._number)
        module, basis = call.origin.module, call.origin.basis
        before = self._open.records.get((module, self._modules[module] - 1))
        is_plain = basis.weights == FROM_CALL and call.sizes[3] > 1
        if is_plain and before is not None and _same_weights(before.steps[0], call, measured):
            call = call.with_origin(basis=replace(basis, weights=Fact(How.CALL, REPEATED)))
        step = record_call(call, measured, keep)
        self._open.records[module, self._modules[module]] = Record(module, [step], reader=self._reader)
        self._modules[module] += 1

    def _keeps(self, call: WatchedCall) -> bool:
        if self.keep is not None or not isinstance(call.attention, OwnWeights):
            return self.keep is not False
        size = call.attention.weights.nbytes
        if self._weights_kept + size > WEIGHTS_KEPT:
            return False
        self._weights_kept += size
        return True

    def _close(self) -> None:
        """The running forward is over: it becomes part of the one before, or a forward of its own."""
        self.measure()
        done, self._open = self._open, None
        if done is None:
            return
        last = self._past[-1] if self._past else None
        if last and last.number == done.number and last.records.keys().isdisjoint(done.records):
            last.records.update(done.records)  # the report was read while it ran
            return
        for earlier in self._past[: -RECENT - 1 : -1]:
            if (rows := done.rows_in(earlier)) is not None:
                earlier.append(done, rows)
                return
        self._past.append(done)


def _same_weights(before: RecordedCall, call: WatchedCall, measured: Mapping[str, Tensor]) -> bool:
    """Has this call the weights of the one before? By its queries and keys, where those were kept."""
    if before.call.sizes != call.sizes or before.measured.keys() != measured.keys():
        return False
    pairs = [(before.measured[name].nan_to_num(), value.nan_to_num()) for name, value in measured.items()]
    one, other = before.call.attention, call.attention
    if not (before.kept and isinstance(one, QK) and isinstance(other, QK)):
        return all(torch.equal(*pair) for pair in pairs)
    # The statistics are compared for the mask's sake; measured together with others, they may differ in the last bit.
    same = torch.equal(one.q, other.q) and torch.equal(one.k, other.k)
    return same and all(torch.allclose(*pair, rtol=1e-4, atol=1e-5) for pair in pairs)


def _collected(collect: Iterable[str] | None) -> frozenset[str]:
    """The names of the statistics to collect; an unknown name is refused."""
    if collect is None:
        return frozenset(DEFAULT)
    names = {collect} if isinstance(collect, str) else set(collect)
    check_collected(frozenset(names))
    if "default" in names:
        names |= {*DEFAULT}
    if "received_mean" in names:  # over the steps of a generation, the mean is joined from the sum
        names.add("received")
    return frozenset(names - {"default"})

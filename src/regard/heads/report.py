"""What was seen: every head of every layer, in a table, by number, as a file."""

from __future__ import annotations

import importlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, overload

import torch
from jaxtyping import Float
from torch import Tensor

from regard.heads import statistics
from regard.heads.call import WatchedCall
from regard.heads.compare import Comparison, Portrait, compare
from regard.heads.record import MAP, TOP, Copies, Record, Step, take
from regard.heads.roles import NAMES, Role, Tally
from regard.heads.views import Head, Index, Layer, index, place
from regard.show.heads import names_in_short
from regard.show.table import Cell, html_table, terminal_width, text_table

EVERY = (*statistics.ROWS, *statistics.COLUMNS, *statistics.WIDE)
WEIGHTS_KEPT = 256 * 2**20  # bytes of written-out weights that are kept unasked
_FEW = 24  # rows of the table that prints by itself
_NAMES = 12  # letters of module names in a heading, or none
_COLUMNS = ("entropy", "distance", "sink", "previous", "self", "induction", "largest")


Place = tuple[str, int]  # a layer by the module it ran in, and how often that module had run before in this forward


@dataclass
class Forward:
    """One run of the model, or a whole generation: the records of its layers, in the order in which they ran."""

    number: int
    records: dict[Place, Record] = field(default_factory=dict)

    def goes_on_from(self, other: Forward) -> bool:
        """Is this the next step of that one's generation?

        It is where every layer was there before with the same batch and heads; where keys grew by the new queries, or
        stayed (cross-attention; a cache that is full); and where some did grow, or one query looks at the keys of before.
        """
        grew, single = False, True
        for where, record in self.records.items():
            if where not in other.records:
                return False
            B, H, T, S = record.steps[0].call.sizes
            old_B, old_H, _, old_S = other.records[where].steps[-1].call.sizes
            if (old_B, old_H) != (B, H):
                return False
            grows = old_S + T == S and T < S
            if not grows and (old_S < S or (T >= S and old_S != S)):
                return False
            grew, single = grew or grows, single and T == 1 < S
        return grew or (single and any(_same_keys(other.records[where], new) for where, new in self.records.items()))

    def append(self, later: Forward) -> None:
        """Take the later forward's rows after one's own."""
        self.number = later.number
        for where, record in later.records.items():
            for step in record.steps:
                self.records[where].go_on(step)


def _same_keys(old: Record, new: Record) -> bool:
    """Are these the keys of before, in place or moved up by one? Where none were kept, nobody knows better."""
    before, after = old.call(-1).k, new.call(0).k
    if before is None or after is None or before.shape != after.shape or before.shape[3] == 0:
        return True
    return torch.equal(before[:, :, 0], after[:, :, 0]) or torch.equal(before[:, :, 1:], after[:, :, :-1])


class Seen:
    """Every head of a model, measured while it ran.

    >>> from regard.attention.masks import causal
    >>> from regard.heads.call import WatchedCall
    >>> seen = Seen()
    >>> q = k = torch.eye(5).view(1, 1, 5, 5)
    >>> seen.add(0, 0, WatchedCall("attention", q=q, k=k, scale=50.0, mask=causal()))
    >>> seen[0, 0].role.name
    'self'
    >>> seen[0, 0].weights(rows=4).round()
    tensor([[[0., 0., 0., 0., 1.]]])

    `seen` prints as a table; `seen[5, 1]` is a head, `seen[5]` a layer (by number or by name). Steps of a generation
    are joined into one forward; other runs stay apart in `seen.forwards`, and the table averages over them.

    collect: which statistics; "default" is all that one pass gives. keep: whether queries and keys are kept, from which
    top, map, weights and rollout are computed later; by default they are, and weights that a model wrote out itself
    are while they stay under 256 MiB in all.
    """

    def __init__(self, collect: Iterable[str] | None = None, keep: bool | None = None) -> None:
        self.collect = _chosen(collect)
        self.keep = keep
        self.told: Callable[[int, int], None] | None = None  # called with forward and layer after each call
        self._past: list[Forward] = []
        self._open: Forward | None = None
        self._number = -1  # of the forward that runs, and what ran in it so far
        self._layers: set[int] = set()
        self._modules: Counter[str] = Counter()
        self._copies = Copies()
        self._weights_kept = 0
        self._tallies: dict[int, Tally] = {}

    @classmethod
    def _of(cls, forwards: Sequence[Forward], collect: frozenset[str], keep: bool | None) -> Seen:
        seen = cls(collect, keep)
        seen._past = list(forwards)
        return seen

    @torch.no_grad()
    def add(self, forward: int, layer: int, call: WatchedCall) -> None:
        """Measure one call at once, and keep of it what was asked for."""
        found = dict(statistics.measure(call, self.collect))
        _add_wide(found, call, self.collect)
        if self._number != forward or layer in self._layers:
            self._close()
            self._number, self._layers, self._modules, self._copies = forward, set(), Counter(), Copies()
        self._open = self._open or Forward(forward)
        step = take(call, found, self._keeps(call), self._copies)
        self._open.records[call.module, self._modules[call.module]] = Record(call.module, [step])
        self._layers.add(layer)
        self._modules[call.module] += 1
        self._tallies.clear()
        if self.told is not None:
            self.told(forward, layer)

    def _keeps(self, call: WatchedCall) -> bool:
        if self.keep is not None or call.weights is None:
            return self.keep is not False
        size = call.weights.numel() * call.weights.element_size()
        if self._weights_kept + size > WEIGHTS_KEPT:
            return False
        self._weights_kept += size
        return True

    def _close(self) -> None:
        """The open forward is over: it becomes part of the one before, or one of its own."""
        done, self._open = self._open, None
        if done is None:
            return
        last = self._past[-1] if self._past else None
        if last and last.number == done.number and last.records.keys().isdisjoint(done.records):
            last.records.update(done.records)  # someone looked while it ran
        elif last and done.goes_on_from(last):
            last.append(done)
        else:
            self._past.append(done)

    @property
    def _forwards(self) -> list[Forward]:
        self._close()
        return self._past

    @property
    def forwards(self) -> list[Seen]:
        """The runs of the model, each with all that `seen` itself has."""
        return [Seen._of([forward], self.collect, self.keep) for forward in self._forwards]

    def _records(self) -> list[list[Record]]:
        """The layers, each with its records in the forwards that ran it."""
        found: dict[Place, list[Record]] = {}
        for forward in self._forwards:
            for where, record in forward.records.items():
                found.setdefault(where, []).append(record)
        return list(found.values())

    @property
    def layers(self) -> list[str]:
        """The modules that attended, in order."""
        return [records[0].name for records in self._records()]

    def __len__(self) -> int:
        return len(self._records())

    def __iter__(self) -> Iterator[Layer]:
        return (self[number] for number in range(len(self)))

    @overload
    def __getitem__(self, key: tuple[int | str, int]) -> Head: ...
    @overload
    def __getitem__(self, key: int | str) -> Layer: ...
    def __getitem__(self, key: int | str | tuple[int | str, int]) -> Head | Layer:
        if isinstance(key, tuple) and len(key) != 2:
            raise ValueError(f"seen[layer] is a layer and seen[layer, head] a head; this has {len(key)} numbers")
        layer, head = key if isinstance(key, tuple) else (key, None)
        number, records = self._find(layer)
        if len(records) > 1:
            first = next(i for i, one in enumerate(self._past) if records[0] in one.records.values())
            there = layer if isinstance(layer, str) else list(self._past[first].records.values()).index(records[0])
            how = f"seen.forwards[{first}][{there!r}{'' if head is None else f', {head}'}]"
            raise ValueError(f"{len(self._past)} forwards were seen; choose one: {how}")
        view = Layer(records[0], number, partial(self._tally, number))
        return view if head is None else view[head]

    def _find(self, layer: int | str) -> tuple[int, list[Record]]:
        """Layers are counted as they stand in the report, 0 to len(seen) − 1."""
        found = self._records()
        if isinstance(layer, str):
            names = [records[0].name for records in found]
            if names.count(layer) != 1:
                fault = "no layer is" if layer not in names else f"{names.count(layer)} layers are"
                raise ValueError(f"{fault} called {layer!r}; choose by number, or one of {names_in_short(names)}")
            number = names.index(layer)
        else:
            number = place(layer, len(found), "layer", "this report")
        return number, found[number]

    def _tally(self, number: int) -> Tally:
        if number not in self._tallies:
            self._tallies[number] = Tally(self._records()[number])
        return self._tallies[number]

    def _portraits(self) -> dict[tuple[int, int], Portrait]:
        found = {}
        for number, records in enumerate(self._records()):
            tally = self._tally(number)
            for head in range(records[0].sizes[1]):
                keys = max(record.sizes[3] for record in records)
                found[number, head] = Portrait(tally.role(head), tally.means(head), keys)
        return found

    def summary(self) -> dict[str, Any]:
        """All means as plain numbers, ready for JSON; None where no row has a value.

        {"forwards": 1, "layers": [{"name": "h.0.attn", "heads": [{"role": "mixed", "entropy": 1.2, …}, …]}, …]}
        """
        layers: list[dict[str, Any]] = [{"name": name, "heads": []} for name in self.layers]
        for (number, _), one in self._portraits().items():
            means = {name: None if math.isnan(mean) else mean for name, mean in one.means.items()}
            layers[number]["heads"].append({"role": one.role.name, "evidence": one.role.evidence, **means})
        return {"forwards": len(self._forwards), "layers": layers}

    def to_pandas(self) -> Any:
        """The means as a pandas DataFrame, a row a head; NaN where no row has a value."""
        try:
            pandas = importlib.import_module("pandas")
        except ImportError:
            raise ImportError("to_pandas() needs pandas, which is not installed; pip install pandas") from None
        names = self.layers
        rows = [
            {"layer": layer, "head": head, "module": names[layer], "role": one.role.name, "score": one.role.score}
            | dict(one.means)
            for (layer, head), one in self._portraits().items()
        ]
        return pandas.DataFrame(rows)

    def compare(self, other: Seen) -> Comparison:
        """Which heads changed from this report to the other: between checkpoints, or between prompts."""
        return compare(self._portraits(), other._portraits())

    @torch.no_grad()
    def rollout(self, tokens: Index, layers: int | str | Sequence[int | str] | None = None) -> Float[Tensor, "B n S"]:
        """How much of each input token is in these tokens after all layers, (B, n, S), without a T × T matrix.

        The product over layers of ½ · (mean of the heads' weights) + ½ · identity, only the rows of `tokens`
        (attention rollout, arXiv:2005.00928). `layers` chooses those to follow, for models that hold several stacks.
        """
        layers = [layers] if isinstance(layers, (int, str)) else layers
        numbers = range(len(self)) if layers is None else [self._find(layer)[0] for layer in layers]
        found = [self._find(number)[1] for number in numbers]
        if any(len(records) > 1 for records in found):
            raise ValueError(f"{len(self._past)} forwards were seen; choose one: seen.forwards[0].rollout(…)")
        chosen = [records[0] for records in found]
        if not chosen:
            raise ValueError(f"a rollout needs at least one layer; {len(self)} were seen and 0 chosen")
        sizes = [record.sizes[2:] for record in chosen]
        if any(T != S or size != sizes[0] for size in sizes for T, S in [size]):
            listed = ", ".join(f"{n}: {T} × {S}" for n, (T, S) in zip(numbers, sizes, strict=True))
            raise ValueError(
                f"a rollout needs layers in which one text attends to itself, all of one length; these are {listed} "
                "(queries × keys); choose some with layers=[…]"
            )
        B, _, T, _ = chosen[0].sizes
        device = chosen[0].steps[0].call.device
        rows = index(tokens, T, "token", device)
        amounts = torch.zeros(B, len(rows), T, device=device)
        amounts[:, torch.arange(len(rows), device=device), rows] = 1.0
        for record in reversed(chosen):
            amounts = amounts / 2 + record.carry(amounts) / 2
        return amounts

    def save(self, path: str | Path, keep: bool | None = None) -> None:
        """Write all of it to one safetensors file; keep=False leaves out queries and keys, which are most of it."""
        from regard.heads.files import save

        save(self, path, keep)

    def table(
        self, width: int = 80, all: bool = False, layer: int | str | None = None, more: str = "seen.table(all=True)"
    ) -> str:
        """The heads as aligned text, grouped by role, rare ones first; all=True shows every head, `more` says how."""
        columns, rows = self._cells(layer)
        shown = rows if all else rows[:_FEW]
        lines = [self._heading(width), "", text_table(columns, shown, width)]
        if len(shown) < len(rows):
            lines += [f"  {_counted(rows[_FEW:])}", f"  All of them: {more}"]
        return "\n".join(lines)

    def order(self, layer: int | str | None = None) -> list[tuple[int, int]]:
        """(layer, head) as the table lists them: grouped by role, the clearest first."""
        return list(self._ordered(layer))

    def _ordered(self, layer: int | str | None) -> dict[tuple[int, int], Portrait]:
        chosen = None if layer is None else self._find(layer)[0]
        found = {key: one for key, one in self._portraits().items() if chosen in (None, key[0])}
        return dict(sorted(found.items(), key=lambda item: _rank(item[1].role)))  # stable: like roles stay in order

    def _cells(self, layer: int | str | None = None) -> tuple[list[str], list[list[Cell]]]:
        portraits = self._ordered(layer)
        # A column in which nothing has a value says nothing: no token was repeated, or all is cross-attention.
        known = [{n for n, mean in one.means.items() if not math.isnan(mean)} for one in portraits.values()]
        names = [n for n in _COLUMNS if any(n in one for one in known)]
        rows: list[list[Cell]] = [
            [f"{number}.{head}", one.role.name, *(one.means.get(name, float("nan")) for name in names)]
            for (number, head), one in portraits.items()
        ]
        return ["head", "role", *names], rows

    def _heading(self, width: int = 80) -> str:
        records = self._records()
        if not records:
            return "  nothing was seen yet"
        layers = [one for (one, *_) in records]
        heads = sorted({record.sizes[1] for record in layers})
        lengths = sorted({record.sizes[2] for found in records for record in found})
        runs = len(self._forwards)
        texts = layers[0].sizes[0]
        parts = [
            f"{_plural(len(layers), 'layer')} × {_plural('–'.join(map(str, _ends(heads))), 'head')}",
            ("" if texts == 1 else f"{texts} × ") + _plural("–".join(map(str, _ends(lengths))), "token"),
            *([f"{runs} forwards"] if runs > 1 else []),
        ]
        start = "  " + " · ".join(parts)
        room = width - len(start) - 3
        names = names_in_short([record.name or "model" for record in layers], room)
        return f"{start} · {names}" if room >= _NAMES else start

    def __repr__(self) -> str:
        return self.table(terminal_width()) if len(self) else self._heading()

    def _repr_html_(self) -> str:
        columns, rows = self._cells()
        more = f"{_counted(rows[_FEW:])}. All of them: seen.table(all=True)" if len(rows) > _FEW else ""
        return html_table(self._heading().strip(), columns, rows[:_FEW], more)


def placed(records: Sequence[Record]) -> dict[Place, Record]:
    """The records of one forward, in order, each at its place."""
    found: dict[Place, Record] = {}
    times: Counter[str] = Counter()
    for record in records:
        found[record.name, times[record.name]] = record
        times[record.name] += 1
    return found


def _add_wide(found: dict[str, Tensor], call: WatchedCall, collect: frozenset[str]) -> None:
    """What is wide and was asked for by name is computed while the call is at hand."""
    H = call.sizes[1]
    missing = {"histogram": "histogram", "top": "top_keys", "map": "map"}
    wanted = [name for name, key in missing.items() if name in collect and key not in found]
    if not wanted:
        return
    lse = found["lse"] if "lse" in found else _lse(call)
    if "histogram" in wanted:
        found["histogram"] = torch.stack([statistics.histogram(call, lse, head) for head in range(H)], 1)
    if "map" in wanted:
        found["map"] = torch.stack([statistics.pooled(call, lse, head, MAP) for head in range(H)], 1)
    if "top" in wanted:
        both = [statistics.top(call, lse, head, TOP) for head in range(H)]
        found["top_keys"] = torch.stack([keys for keys, _ in both], 1)
        found["top_weights"] = torch.stack([weights for _, weights in both], 1)


def _lse(call: WatchedCall) -> Tensor:
    return Record(call.module, [Step(call, True, {})]).lse(0)


def _chosen(collect: Iterable[str] | None) -> frozenset[str]:
    if collect is None:
        return frozenset(statistics.DEFAULT)
    names = frozenset([collect] if isinstance(collect, str) else collect)
    if unknown := sorted(map(repr, names - {*EVERY, "default"})):
        raise ValueError(f"collect names {', '.join(unknown)}; known are {', '.join(EVERY)}, and default for the usual")
    names = names - {"default"} | (frozenset(statistics.DEFAULT) if "default" in names else frozenset())
    # The mean of what a key received is joined over the steps of a generation from the sum.
    return names | ({"received"} if "received_mean" in names else frozenset())


def _rank(role: Role) -> tuple[int, float]:
    """Induction first, mixed last; first tokens late, because many heads rest there and few do what comes before."""
    if not role.clear:
        return len(NAMES) + (role.name == "mixed"), 0.0
    return len(NAMES) - 1 if role.name == "first token" else NAMES.index(role.name), -role.score


def _counted(rows: Sequence[Sequence[Cell]]) -> str:
    """How many heads are left out, and what they are."""
    roles = Counter(str(row[1]) for row in rows)
    return f"… and {len(rows)} more: " + " · ".join(f"{count} {role}" for role, count in roles.items())


def _plural(count: int | str, word: str) -> str:
    return f"{count} {word}{'' if str(count) == '1' else 's'}"


def _ends(numbers: list[int]) -> list[int]:
    return numbers if len(numbers) < 2 else [numbers[0], numbers[-1]]

"""A record: all that one layer did in one forward, the steps of a generation one after another.

Statistics are measured while the model runs and joined when they are read. What needs the weights again (top, map,
any slice) is computed on demand from the queries and keys that were kept, never as a whole T × S matrix.
"""

from __future__ import annotations

from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, replace
from types import CellType, FunctionType
from typing import Any

import torch
from torch import Tensor

from regard.attention.masks import EVERYTHING, Mask
from regard.heads import statistics
from regard.heads.call import WatchedCall
from regard.heads.visibility import is_plain, seeing_queries, seen_keys

TOP = 8  # how many keys a query keeps where "top" is collected
MAP = 128  # cells of a side where "map" is collected
_ROWS = 256  # rows of exact weights looked at together where a map spans several steps


@dataclass(eq=False)
class Step:
    """The rows of one call: their statistics, and as much of the call as was kept."""

    call: WatchedCall  # what was not kept is empty, of width 0: the sizes stay readable
    kept: bool
    found: dict[str, Tensor]
    shares_keys: bool = False  # its keys are the beginning of the record's

    @property
    def rows(self) -> int:
        return self.call.sizes[2]

    @property
    def keys(self) -> int:
        return self.call.sizes[3]


@dataclass(eq=False)
class Record:
    """One layer of one forward."""

    name: str
    steps: list[Step] = field(default_factory=list)
    shared: Tensor | None = None  # (B, Hkv, S, D): the newest keys, where older steps saw the beginning of them
    _joined: dict[str, Tensor] = field(default_factory=dict)
    _spans: list[tuple[int, int, int]] = field(default_factory=list)

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """(B, H, T, S) of all steps together."""
        B, H, _, _ = self.steps[0].call.sizes
        spans = self.spans()
        return B, H, spans[-1][1], max(span[2] + step.keys for span, step in zip(spans, self.steps, strict=True))

    @property
    def kept(self) -> bool:
        """Can weights be computed again?"""
        return all(step.kept for step in self.steps)

    @property
    def across(self) -> bool:
        """Is this cross-attention, as far as is known?"""
        return self.steps[0].call.across

    @property
    def attends_to_itself(self) -> bool:
        """Are queries and keys the same text? Told by a first step that is square, or by keys that grow."""
        first, *others = self.steps
        if self.across:
            return False
        return first.rows == first.keys or any(step.keys == first.keys + step.rows for step in others[:1])

    def spans(self) -> list[tuple[int, int, int]]:
        """For each step: its first row, the row after its last, and the place of its first key in the whole text.

        That place is above 0 where the cache of a window let older keys go.
        """
        if len(self._spans) != len(self.steps):
            first, moves = self.steps[0], len(self.steps) > 1 and self.attends_to_itself
            self._spans, rows = [], 0
            for step in self.steps:
                rows += step.rows
                offset = first.keys - first.rows + rows - step.keys if moves else 0
                self._spans.append((rows - step.rows, rows, offset))
        return self._spans

    def offset(self, index: int) -> int:
        """The place of the step's first key."""
        return self.spans()[index][2]

    def go_on(self, step: Step) -> None:
        """Take the next step of a generation; keys that only grew are kept once."""
        newest = self.steps[-1]
        self.steps.append(step)
        self._joined.clear()
        if not (step.kept and newest.kept and step.call.weights is None and newest.call.weights is None):
            return
        new = step.call.k
        old = self.shared if newest.shares_keys else newest.call.k
        assert new is not None
        assert old is not None
        grew = old.shape[2] <= new.shape[2] and old.shape[:2] == new.shape[:2] and old.shape[3] == new.shape[3]
        if grew and torch.equal(new[:, :, : old.shape[2]], old):
            self.shared = new
            for one in (newest, step):
                one.call, one.shares_keys = _without_keys(one.call), True
        elif self.shared is not None and newest.shares_keys:
            # The chain breaks here: its steps take their own keys back, and a new chain may begin.
            for one in self.steps:
                if one.shares_keys:
                    one.call, one.shares_keys = replace(one.call, k=self.shared[:, :, : one.keys]), False
            self.shared = None

    def call(self, index: int) -> WatchedCall:
        """The whole call of a step, its keys included."""
        step = self.steps[index]
        if not step.shares_keys:
            return step.call
        assert self.shared is not None
        return replace(step.call, k=self.shared[:, :, : step.keys])

    def places(self) -> Tensor:
        """(T,): the place of each query in the text."""
        return torch.cat(
            [torch.arange(step.rows) + step.call.shift + self.offset(i) for i, step in enumerate(self.steps)]
        )

    def read(self, name: str) -> Tensor:
        """A collected statistic of all steps together, (B, H, T …) or (B, H, S)."""
        if not all(name in step.found for step in self.steps):
            raise ValueError(
                f'"{name}" was not collected in {self.name or "this layer"}; {_how_to_collect(name, self.steps)}'
            )
        if len(self.steps) == 1:
            return self.steps[0].found[name]
        if name not in self._joined:
            self._joined[name] = self._join(name)
        return self._joined[name]

    def _join(self, name: str) -> Tensor:
        parts = [step.found[name] for step in self.steps]
        if name in ("largest_key", "top_keys"):
            parts = [torch.where(part < 0, part, part + self.offset(i)) for i, part in enumerate(parts)]
        if name == "sink":  # a cache that let the first key go left no weight on it
            real = self.steps[0].call.real
            first = torch.zeros(1) if real is None else (~real).cumprod(1).sum(1)  # of each text
            gone = [first[:, None, None].to(part.device) < self.offset(i) for i, part in enumerate(parts)]
            parts = [torch.where(g & ~part.isnan(), 0.0, part) for g, part in zip(gone, parts, strict=True)]
        if name == "received":
            return self._over_keys(parts)
        if name == "received_mean":
            B, H, _, _ = self.sizes
            queries = self._over_keys([self.seers(i).expand(B, H, -1) for i in range(len(self.steps))])
            return torch.where(queries > 0, self.read("received") / queries, torch.nan)
        if name == "map":
            raise ValueError(
                "the map of several steps is computed on demand and needs their keys; watch with keep=True"
            )
        return torch.cat(_as_wide(parts) if name == "histogram" else parts, dim=2)

    def _over_keys(self, parts: list[Tensor]) -> Tensor:
        B, H, _, S = self.sizes
        total = parts[0].new_zeros(B, H, S)
        for i, part in enumerate(parts):
            total[:, :, self.offset(i) : self.offset(i) + part.shape[2]] += part
        return total

    def seers(self, index: int) -> Tensor:
        """How many queries of this step may see each key."""
        found = self.steps[index].found
        return found["queries"] if "queries" in found else seeing_queries(self.steps[index].call)

    def visible(self) -> tuple[Tensor, Tensor]:
        """How many keys each query may see and their mean distance, (B, H, T) each."""
        B, H, _, _ = self.sizes
        for step in self.steps:
            if "visible" not in step.found:
                step.found["visible"], step.found["even_distance"] = seen_keys(step.call)
        both = [
            torch.cat([step.found[name].expand(B, H, -1) for step in self.steps], -1)
            for name in ("visible", "even_distance")
        ]
        return both[0], both[1]

    def lse(self, index: int) -> Tensor:
        """The log of each row's sum, from which any weight follows; measured now where it was not collected."""
        step = self.steps[index]
        if "lse" not in step.found:
            call = self.call(index)
            known = statistics.measure(call, frozenset({"lse"})).get("lse")
            B, H, T, _ = call.sizes
            # Weights that came written out need no sum to be read.
            step.found["lse"] = torch.full((B, H, T), torch.nan, device=call.device) if known is None else known
        return step.found["lse"]

    def need(self, what: str) -> None:
        """Raise where weights are asked for and nothing was kept to compute them from."""
        if not self.kept:
            raise ValueError(
                f"{what} needs the queries and keys of {self.name or 'this layer'}, and they were not kept; "
                "watch with keep=True"
            )

    def weights(self, head: int, rows: Tensor, cols: Tensor) -> Tensor:
        """(B, R, C): the exact weights of these rows and columns; 0 at keys that came after a step."""
        self.need("weights()")
        if len(self.steps) == 1:
            return statistics.weights(self.call(0), self.lse(0), head, rows, cols)
        found: Tensor | None = None
        for i, (start, end, offset) in enumerate(self.spans()):
            mine = ((rows >= start) & (rows < end)).nonzero()[:, 0]
            there = ((cols >= offset) & (cols < offset + self.steps[i].keys)).nonzero()[:, 0]
            if len(mine) == 0:
                continue
            part = statistics.weights(self.call(i), self.lse(i), head, rows[mine] - start, cols[there] - offset)
            if found is None:
                found = part.new_zeros(part.shape[0], len(rows), len(cols))
            found[:, mine[:, None], there] = part
        if found is None:
            found = torch.zeros(self.sizes[0], len(rows), len(cols), device=rows.device)
        return found

    def top(self, head: int, n: int) -> tuple[Tensor, Tensor]:
        """Keys and weights (B, T, n) of each query's n largest."""
        if all("top_keys" in step.found and n <= step.found["top_keys"].shape[-1] for step in self.steps):
            return self.read("top_keys")[:, head, :, :n], self.read("top_weights")[:, head, :, :n]
        self.need(f"top({n})")
        parts = [statistics.top(self.call(i), self.lse(i), head, n) for i in range(len(self.steps))]
        keys = [torch.where(k < 0, k, k + self.offset(i)) for i, (k, _) in enumerate(parts)]
        return torch.cat(keys, 1), torch.cat([w for _, w in parts], 1)

    def map(self, head: int, n: int) -> Tensor:
        """The mean weight in each cell of a grid over all rows and keys."""
        if len(self.steps) == 1:
            stored = self.steps[0].found.get("map")
            _, _, T, S = self.sizes
            if stored is not None and stored.shape[2:] == (min(n, T), min(n, S)):
                return stored[:, head]
            self.need(f"map({n})")
            return statistics.pooled(self.call(0), self.lse(0), head, n)
        self.need(f"map({n})")
        return self._pool(head, n)

    def _pool(self, head: int, n: int) -> Tensor:
        B, _, T, S = self.sizes
        down, across = min(n, T), min(n, S)
        device = self.steps[0].call.device
        cols = torch.arange(S, device=device)
        total = torch.zeros(B, down, across, dtype=torch.float64, device=device)
        rows_in = torch.zeros(B, down, dtype=torch.float64, device=device)
        real = self._real()
        for rows in torch.arange(T, device=device).split(_ROWS):
            exact = self.weights(head, rows, cols).nan_to_num(0.0).double()
            counts = (exact.sum(-1) > 0) & real[:, rows]  # a row that sees nothing has no weights at all
            exact = exact * counts[..., None]
            narrow = exact.new_zeros(B, len(rows), across).index_add_(2, _cells(cols, S, across), exact)
            cell = _cells(rows, T, down)
            total.index_add_(1, cell, narrow)
            rows_in.index_add_(1, cell, counts.double())
        width = torch.bincount(_cells(cols, S, across), minlength=across)
        return (total / (rows_in[..., None] * width)).to(self.lse(0).dtype)

    def _real(self) -> Tensor:
        B = self.sizes[0]
        return torch.cat(
            [
                torch.ones(B, step.rows, dtype=torch.bool, device=step.call.device)
                if step.call.real is None
                else step.call.real
                for step in self.steps
            ],
            1,
        )

    def histogram(self, head: int) -> Tensor:
        """(B, T, bins): weight by powers of two of the distance."""
        if all("histogram" in step.found for step in self.steps):
            return self.read("histogram")[:, head]
        self.need("histogram")
        parts = [statistics.histogram(self.call(i), self.lse(i), head) for i in range(len(self.steps))]
        return torch.cat(_as_wide(parts), 1)

    def carry(self, amounts: Tensor) -> Tensor:
        """amounts (B, n, T) handed on along the mean weights of all heads: (B, n, S)."""
        self.need("rollout()")
        out = amounts.new_zeros(*amounts.shape[:2], self.sizes[3])
        for i, (start, end, offset) in enumerate(self.spans()):
            part = statistics.carry(self.call(i), self.lse(i), amounts[:, :, start:end].contiguous())
            out[:, :, offset : offset + part.shape[2]] += part.to(out.dtype)
        return out


class Copies:
    """Copies of masks and biases, T × S numbers that a model makes once and uses in many layers: each is made once."""

    def __init__(self) -> None:
        self._made: dict[tuple[object, ...], Tensor] = {}
        self._functions: dict[FunctionType, FunctionType] = {}

    def of(self, tensor: Tensor) -> Tensor:
        """The copy of this tensor."""
        place = (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())
        # The same memory may hold something else by now: what was copied is compared before it is shared.
        if place not in self._made or not torch.equal(self._made[place], tensor):
            self._made[place] = _copy(tensor)
        return self._made[place]

    def inside(self, thing: Any) -> Any:
        """The same rule, list or function with copies of the tensors in it: the model may change its own afterwards."""
        if isinstance(thing, Tensor):
            return self.of(thing)
        if isinstance(thing, Mask) and vars(thing):
            own = copy(thing)
            vars(own).update({name: self.inside(value) for name, value in vars(thing).items()})
            return own
        if type(thing) in (tuple, list):
            return type(thing)(self.inside(one) for one in thing)
        if type(thing) is dict:
            return {name: self.inside(value) for name, value in thing.items()}
        if isinstance(thing, FunctionType) and (thing.__closure__ or thing.__defaults__ or thing.__kwdefaults__):
            return self._function(thing)
        return thing

    def _function(self, function: FunctionType) -> FunctionType:
        if function not in self._functions:
            cells = tuple(CellType() for _ in function.__closure__ or ())
            own = FunctionType(function.__code__, function.__globals__, function.__name__, None, cells)
            self._functions[function] = own  # before its cells are filled: a function may know itself
            own.__defaults__ = self.inside(function.__defaults__)
            own.__kwdefaults__ = self.inside(function.__kwdefaults__)
            for cell, known in zip(cells, function.__closure__ or (), strict=True):
                with suppress(ValueError):  # a cell may be empty
                    cell.cell_contents = self.inside(known.cell_contents)
        return self._functions[function]


def take(call: WatchedCall, found: dict[str, Tensor], keep: bool, copies: Copies) -> Step:
    """A step of this call: what is kept of it is the watcher's own copy."""
    found = {name: value.detach() for name, value in found.items()}
    if keep:
        copied: dict[str, Any] = {"lse": None, "mask": copies.inside(call.mask)}
        for name in ("q", "k", "weights", "bias", "alibi", "real", "tokens"):
            if (value := getattr(call, name)) is not None:
                copied[name] = copies.of(value) if name == "bias" else _copy(value)
        return Step(replace(call, **copied), True, found)
    B, H, T, S = call.sizes
    device = call.device
    if call.weights is not None or call.bias is not None or not is_plain(call.mask):
        # What stays must not hold a T × S mask, so all that is asked of one is counted now.
        found["visible"], found["even_distance"] = seen_keys(call)
        if "received_mean" in found:
            found["queries"] = seeing_queries(call)
        call = replace(call, mask=EVERYTHING)
    empty: dict[str, Any] = dict.fromkeys(("bias", "alibi", "weights", "lse", "tokens"))
    empty |= {"q": torch.empty(B, H, T, 0, device=device), "k": torch.empty(B, 1, S, 0, device=device)}
    return Step(replace(call, **empty), False, found)


def _copy(tensor: Tensor) -> Tensor:
    """A copy that stays as small as the tensor: axes that were only spread out are spread out again."""
    small = tensor.detach()
    for axis, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if size > 1 and stride == 0:
            small = small.narrow(axis, 0, 1)
    return small.clone().expand(tensor.shape)


def _without_keys(call: WatchedCall) -> WatchedCall:
    assert call.k is not None
    return replace(call, k=call.k.new_empty(*call.k.shape[:3], 0))


def _as_wide(parts: list[Tensor]) -> list[Tensor]:
    """Histograms of shorter steps get the bins they could not reach, with nothing in them."""
    bins = max(part.shape[-1] for part in parts)
    return [torch.nn.functional.pad(part, (0, bins - part.shape[-1])) for part in parts]


def _cells(index: Tensor, size: int, cells: int) -> Tensor:
    """The cell of each row or column: cell c covers [c · size // cells, (c + 1) · size // cells)."""
    ends = torch.arange(1, cells + 1, device=index.device) * size // cells
    return torch.searchsorted(ends, index, right=True)


def _how_to_collect(name: str, steps: list[Step]) -> str:
    if name in ("induction", "duplicate") and all(step.call.tokens is None for step in steps):
        return "it needs the token ids: watch(model, tokens=input_ids)"
    return f'watch with collect=("default", "{name}")'

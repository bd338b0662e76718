"""A record: what one layer did in one forward, or in all steps of a generation.

Statistics are measured while the model runs and joined when they are read. What needs the weights again (top, map,
any slice) is computed on demand from the queries and keys that were kept, never as a full T × S matrix.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attention.call import QK
from regard.attention.masks import EVERYTHING, take_texts
from regard.heads.calls.call import TextIds, WatchedCall, changed
from regard.heads.calls.same_keys import fingerprint_of
from regard.heads.calls.visibility import is_counted_by_mask, queries_per_key, visible_key_counts
from regard.heads.inputs.pieces import TextReader
from regard.heads.measure import on_demand, statistics
from regard.heads.measure.registry import NEED_TOKENS, STORED, Join, Target
from regard.heads.measure.target_keys import locate
from regard.support.tokens import TextTokens

_ROWS = 256  # rows of exact weights at a time where a map spans several steps


@dataclass(eq=False)
class RecordedCall:
    """One call of a layer: its statistics, and as much of the call as was kept."""

    call: WatchedCall  # what was not kept is empty, of width 0, so that the sizes stay known
    kept: bool
    measured: dict[str, Tensor]
    shares_keys: bool = False  # its keys are the first ones of the record's

    @property
    def rows(self) -> int:
        return self.call.sizes[2]

    @property
    def keys(self) -> int:
        return self.call.sizes[3]


class RecordTexts(NamedTuple):
    """The tokens of the queries and of the keys, one TextTokens for each text of the batch; or why they are unknown."""

    queries: list[TextTokens] | None
    keys: list[TextTokens] | None
    unknown: str = ""


@dataclass(eq=False)
class Record:
    """One layer of one forward."""

    name: str
    steps: list[RecordedCall] = field(default_factory=list)
    shared: Tensor | None = None  # (B, Hkv, S, D): the newest keys, of which earlier steps had the first ones
    reader: TextReader | None = None  # reads token ids as texts
    texts: RecordTexts | None = None  # read from the ids when they are asked for, or from a file
    orders: list[tuple[int, Tensor]] = field(default_factory=list)  # number of a step, rows that its texts had before
    grew: bool = False  # did the last step add keys of its own to those before, of which a cache may have dropped some?
    _joined: dict[str, Tensor] = field(default_factory=dict)
    _spans: list[tuple[slice, slice]] = field(default_factory=list)

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """(B, H, T, S) of all steps together."""
        B, H, _, _ = self.steps[0].call.sizes
        spans = self.spans()
        return B, H, spans[-1][0].stop, max(keys.stop for _, keys in spans)

    @property
    def kept(self) -> bool:
        """Can weights be computed again?"""
        return all(step.kept for step in self.steps)

    @property
    def across(self) -> bool:
        """Is this cross-attention, as far as is known?"""
        return self.steps[0].call.origin.across

    @property
    def has_positions(self) -> bool:
        """Does each query stand at a key, as far as is known?"""
        return all(step.call.has_positions for step in self.steps)

    @property
    def attends_to_itself(self) -> bool:
        """Are queries and keys the same text? They are where the first step is square, or where steps added keys."""
        first = self.steps[0]
        return self.has_positions and (first.rows == first.keys or self.grew)

    def spans(self) -> list[tuple[slice, slice]]:
        """The rows of each step, and the positions of its keys in the whole text.

        The first of these is above 0 where a sliding-window cache has dropped older keys.
        """
        if len(self._spans) != len(self.steps):
            first, moves = self.steps[0], len(self.steps) > 1 and self.attends_to_itself
            self._spans, rows = [], 0
            for step in self.steps:
                rows += step.rows
                start = first.keys - first.rows + rows - step.keys if moves else 0
                self._spans.append((slice(rows - step.rows, rows), slice(start, start + step.keys)))
        return self._spans

    def append(self, step: RecordedCall, order: Tensor | None = None) -> None:
        """Add the next step of a generation; keys that only grew are kept once. order: the rows of its texts so far."""
        newest = self.steps[-1]
        if self._continues_keys(newest, step, order):
            self.shared = new = step.call.attention.k  # type: ignore[union-attr]
            for one in (newest, step):
                one.call, one.shares_keys = one.call.with_attention(k=new.new_empty(*new.shape[:2], one.keys, 0)), True
        elif self.shared is not None:  # each step gets its own keys back; later ones may share again
            self.settle()  # shared keys are in the order of the newest step
            for index, one in enumerate(self.steps):
                one.call, one.shares_keys = self.call(index), False
            self.shared = None
        if order is not None:
            self.orders.append((len(self.steps), order))
        self.steps.append(step)
        self.texts = None
        self._joined.clear()

    def _continues_keys(self, newest: RecordedCall, step: RecordedCall, order: Tensor | None) -> bool:
        """Does the next step have the keys of the newest, before its own?"""
        one, other = step.call.attention, newest.call.attention
        if not (step.kept and newest.kept and isinstance(one, QK) and isinstance(other, QK)):
            return False
        old = self.shared if newest.shares_keys and self.shared is not None else other.k
        old = old if order is None else take_texts(old, order)
        return torch.equal(one.k[:, :, : old.shape[2]], old)  # False where the shapes differ

    def settle(self) -> None:
        """Put the texts of every step into the order that the last one has, as beam search reorders them."""
        latest: Tensor | None = None
        for number in reversed(range(len(self.steps))):
            while self.orders and self.orders[-1][0] > number:
                before = self.orders.pop()[1]
                latest = before if latest is None else before[latest]
            if latest is not None:
                step = self.steps[number]
                measured = {name: take_texts(t, latest) for name, t in step.measured.items()}
                self.steps[number] = replace(step, call=call_in_order(step.call, latest), measured=measured)

    def call(self, index: int) -> WatchedCall:
        """The call of a step, including its keys."""
        step = self.steps[index]
        if not step.shares_keys:
            return step.call
        assert self.shared is not None
        return step.call.with_attention(k=self.shared[:, :, : step.keys])

    def calls(self) -> list[tuple[slice, slice, WatchedCall, Tensor]]:
        """The rows of each step, the positions of its keys, its call and its lse."""
        return [(*span, self.call(i), self.lse(i)) for i, span in enumerate(self.spans())]

    def positions(self) -> Tensor:
        """(T,): the position of each query in the text."""
        placed = zip(self.spans(), self.steps, strict=True)
        return torch.cat([torch.arange(step.rows) + step.call.shift + keys.start for (_, keys), step in placed])

    def has(self, *names: str) -> bool:
        """Were these collected in every step?"""
        return all(name in step.measured for step in self.steps for name in names)

    def read(self, name: str) -> Tensor:
        """A collected statistic of all steps together, (B, H, T …) or (B, H, S)."""
        if not self.has(name):
            how = f'watch with collect=("default", "{name}")'
            if name in NEED_TOKENS and all(step.call.origin.tokens is None for step in self.steps):
                how = "it needs the token ids: watch(model, tokens=input_ids)"
            raise ValueError(f'"{name}" was not collected in {self.name or "this layer"}; {how}')
        if len(self.steps) == 1:
            return self.steps[0].measured[name]
        if name not in self._joined:
            self._joined[name] = self._join(name)
        return self._joined[name]

    def _join(self, name: str) -> Tensor:
        statistic, parts = STORED[name], [step.measured[name] for step in self.steps]
        if name in statistic.keys:
            parts = self._in_the_text(parts)
        match statistic.join:
            case Join.SUM:
                return self._sum_over_steps(parts)
            case Join.MEAN:
                queries = self.queries_per_key()
                return torch.where(queries > 0, self.read("received") / queries, torch.nan)
            case Join.NEVER:
                raise ValueError(
                    f"the {name} of several steps is computed on demand and needs their keys; watch with keep=True"
                )
            case Join.BINS:
                parts = on_demand.with_equal_bins(parts)
            case Join.TARGET if statistic.target is not None:
                parts = self._with_absent_targets(statistic.target, parts)
        return torch.cat(parts, dim=2)

    def _in_the_text(self, parts: list[Tensor]) -> list[Tensor]:
        """Key numbers of each step as positions in the whole text; −1 stays."""
        spans = zip(parts, self.spans(), strict=True)
        return [torch.where(part < 0, part, part + keys.start) for part, (_, keys) in spans]

    def _with_absent_targets(self, target: Target, parts: list[Tensor]) -> list[Tensor]:
        """0 where the target is a key of the text that its step did not have: it had been dropped, or came later."""
        if not self.attends_to_itself:
            return parts
        real, device = self.steps[0].call.origin.real, parts[0].device
        first = torch.zeros(1, 1, dtype=torch.long) if real is None else (~real).cumprod(1).sum(1, keepdim=True)
        keys = locate(target, first.to(device), self.positions().to(device), None, self.sizes[3])[:, None]
        counts, result = ~self.visible()[0].isnan(), []
        for part, (rows, own) in zip(parts, self.spans(), strict=True):
            key = keys[:, :, rows]
            absent = (key >= 0) & ((key < own.start) | (key >= own.stop))
            result.append(torch.where(absent & counts[:, :, rows], 0.0, part))
        return result

    def _sum_over_steps(self, parts: list[Tensor]) -> Tensor:
        """What belongs to keys, (B, H, S of the step), added up at the position of each key."""
        B, H, _, S = self.sizes
        total = parts[0].new_zeros(B, H, S)
        for part, (_, keys) in zip(parts, self.spans(), strict=True):
            total[:, :, keys] += part
        return total

    def queries_per_key(self) -> Tensor:
        """(B, H, S): how many of the queries that count may see each key."""
        B, H, _, _ = self.sizes
        counts = [step.measured.get("queries", queries_per_key(step.call)) for step in self.steps]
        return self._sum_over_steps([count.expand(B, H, -1) for count in counts])

    def visible(self) -> tuple[Tensor, Tensor]:
        """How many keys each query may see and their mean distance, (B, H, T) each; NaN in rows that do not count."""
        B, H, _, _ = self.sizes
        for step in self.steps:
            if "visible" not in step.measured:
                step.measured["visible"], step.measured["even_distance"] = visible_key_counts(step.call)
        each = [[step.measured[n].expand(B, H, -1) for step in self.steps] for n in ("visible", "even_distance")]
        return torch.cat(each[0], -1), torch.cat(each[1], -1)

    def lse(self, index: int) -> Tensor:
        """The log of each row's sum, from which any weight follows; measured now where it was not collected."""
        step = self.steps[index]
        if "lse" not in step.measured:
            step.measured["lse"] = statistics.measure(self.call(index), frozenset({"lse"}))["lse"]
        return step.measured["lse"]

    def need(self, what: str) -> None:
        """Raise where weights are asked for and nothing was kept to compute them from."""
        if not self.kept:
            raise ValueError(
                f"{what} needs the queries and keys of {self.name or 'this layer'}, and they were not kept; "
                "watch with keep=True"
            )

    def weights(self, head: int, rows: Tensor, cols: Tensor, text: int | None = None) -> Tensor:
        """(B, R, C): the exact weights of these rows and columns; 0 on keys that a step did not have.

        text: only this text of the batch, (1, R, C).
        """
        self.need("weights()")
        calls = self.calls()
        if len(calls) == 1:
            return on_demand.weights(*calls[0][2:], head, rows, cols, text)
        texts = self.sizes[0] if text is None else 1
        result = torch.zeros(texts, len(rows), len(cols), device=rows.device, dtype=self.lse(0).dtype)
        for own_rows, own_keys, call, lse in calls:
            mine, there = inside(own_rows, rows), inside(own_keys, cols)
            if len(mine):
                chosen = rows[mine] - own_rows.start, cols[there] - own_keys.start
                result[:, mine[:, None], there] = on_demand.weights(call, lse, head, *chosen, text)
        return result

    def top(self, head: int, n: int) -> tuple[Tensor, Tensor]:
        """Keys and weights (B, T, n) of each query's n largest."""
        if self.has("top_keys") and all(n <= step.measured["top_keys"].shape[-1] for step in self.steps):
            return self.read("top_keys")[:, head, :, :n], self.read("top_weights")[:, head, :, :n]
        self.need(f"top({n})")
        keys, weights = zip(*(on_demand.top(call, lse, head, n) for _, _, call, lse in self.calls()), strict=True)
        return torch.cat(self._in_the_text(list(keys)), 1), torch.cat(weights, 1)

    def map(self, head: int, n: int) -> Tensor:
        """The mean weight in each cell of a grid over all rows and keys."""
        _, _, T, S = self.sizes
        stored = self.steps[0].measured.get("map")
        if len(self.steps) == 1 and stored is not None and stored.shape[2:] == (min(n, T), min(n, S)):
            return stored[:, head]
        self.need(f"map({n})")
        return on_demand.pooled(self.call(0), self.lse(0), head, n) if len(self.steps) == 1 else self._pool(head, n)

    def _pool(self, head: int, n: int) -> Tensor:
        """The map of several steps, from a few rows of exact weights at a time."""
        B, _, T, S = self.sizes
        down, across = min(n, T), min(n, S)
        cols = torch.arange(S, device=self.steps[0].call.device)
        columns = on_demand.cells(cols, S, across)
        total = torch.zeros(B, down, across, dtype=torch.float64, device=cols.device)
        rows_in = torch.zeros(B, down, dtype=torch.float64, device=cols.device)
        for rows in torch.arange(T, device=cols.device).split(_ROWS):
            exact = self.weights(head, rows, cols).nan_to_num(0.0).double()
            lines = on_demand.cells(rows, T, down)
            total.index_add_(1, lines, exact.new_zeros(B, len(rows), across).index_add_(2, columns, exact))
            rows_in.index_add_(1, lines, (exact.sum(-1) > 0).double())  # the others see nothing, or are padding
        width = torch.bincount(columns, minlength=across)
        return (total / (rows_in[..., None] * width)).to(self.lse(0).dtype)

    def real(self) -> Tensor:
        """(B, T) bool: which queries are real tokens."""
        B, device = self.sizes[0], self.steps[0].call.device
        known = [(step.call.origin.real, torch.ones(B, step.rows, dtype=torch.bool)) for step in self.steps]
        return torch.cat([(everyone if real is None else real).to(device) for real, everyone in known], 1)

    def context(self) -> Tensor:
        """(B, H, T, D): what each head handed over."""
        parts = [step.call.context for step in self.steps]
        kept = [part for part in parts if part is not None]
        if len(kept) < len(parts):
            raise ValueError("what heads hand over was not kept; watch with values=True: watch(model, values=True)")
        return torch.cat(kept, 2)

    def histogram(self, head: int) -> Tensor:
        """(B, T, bins): weight by powers of two of the distance."""
        if self.has("histogram"):
            return self.read("histogram")[:, head]
        self.need("histogram")
        parts = [on_demand.histogram(call, lse, head) for _, _, call, lse in self.calls()]
        return torch.cat(on_demand.with_equal_bins(parts), 1)

    def carry(self, amounts: Tensor) -> Tensor:
        """amounts (B, n, T) @ the mean weights of all heads: (B, n, S)."""
        self.need("rollout()")
        out = amounts.new_zeros(*amounts.shape[:2], self.sizes[3])
        for rows, keys, call, lse in self.calls():
            out[:, :, keys] += on_demand.carry(call, lse, amounts[:, :, rows].contiguous()).to(out.dtype)
        return out


def inside(span: slice, numbers: Tensor) -> Tensor:
    """The places of those numbers that are in this range."""
    is_inside: Tensor = (numbers >= span.start) & (numbers < span.stop)
    return is_inside.nonzero()[:, 0]


def call_in_order(call: WatchedCall, order: Tensor) -> WatchedCall:
    """The call with its texts in this order: text i is what text order[i] was."""

    def take(value: Any, *names: str) -> dict[str, Any]:
        return {name: take_texts(t, order) for name in names if (t := getattr(value, name, None)) is not None}

    numbers = take(call.attention, "q", "k", "weights")
    numbers["mask"] = call.attention.mask.in_order(order.to(call.device), *call.sizes[2:])
    if getattr(call.attention, "bias", None) is not None and call.attention.bias.dim() == 4:  # type: ignore[union-attr]
        numbers |= take(call.attention, "bias")
    known = take(call.origin, "real", "tokens", "fingerprint")
    for name in ("query_text", "key_text"):
        if (text := getattr(call.origin, name)) is not None:
            known[name] = TextIds(**take(text, "ids", "real"))
    attention, origin = changed(call.attention, **numbers), changed(call.origin, **known)
    return changed(call, attention=attention, origin=origin, **take(call, "lse", "context"))


def record_call(call: WatchedCall, measured: dict[str, Tensor], keep: bool) -> RecordedCall:
    """Record a call, of which copies were made, and its statistics."""
    measured = {name: value.detach() if value.requires_grad else value for name, value in measured.items()}
    if keep:
        origin = changed(call.origin, first=None, dropped=None)
        return RecordedCall(changed(call, origin=origin, lse=None), True, measured)
    origin = changed(call.origin, first=None, dropped=None, fingerprint=fingerprint_of(call))
    (B, H, T, S), device, mask = call.sizes, call.device, call.attention.mask
    if not is_counted_by_mask(call.attention):
        # No T × S mask is kept, so whatever will be asked of it is counted now.
        measured["visible"], measured["even_distance"] = visible_key_counts(call)
        if "received_mean" in measured:
            measured["queries"] = queries_per_key(call)
        mask = EVERYTHING
    empty = QK(q=torch.empty(B, H, T, 0, device=device), k=torch.empty(B, 1, S, 0, device=device), mask=mask)
    return RecordedCall(changed(call, attention=empty, origin=origin, lse=None), False, measured)

"""The rows that are kept as examples while a corpus is read, as tensors on the model's device.

Rows of all heads are chosen at once, and only for those that are kept the weights are computed. What a row is as text
is read when the samples are asked for: most rows are displaced by others before.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor

from regard.heads.atlas.cells import RowTokens
from regard.heads.atlas.examples import (
    AFTER,
    BEFORE,
    BESIDE,
    FEW,
    GROUPS,
    KEPT,
    KEYS,
    STRENGTHS,
    STRONGEST,
    UNIFORM,
    ExampleRow,
    ExcerptToken,
    Samples,
)
from regard.heads.inputs.pieces import TokenReader
from regard.heads.measure import on_demand
from regard.heads.report.record import Record

_FULL = (1 << 63) - 1
_GRID = 10_000  # strengths are ordered to four decimals: the same row in another batch may differ in the last bits
_TEXTS = 4096  # so many texts are kept before those without an example are dropped


class KeptRows(NamedTuple):
    """n rows. place: head × GROUPS + group; key: the smaller, the rather it is kept; text, token: see ExampleRow."""

    place: Tensor
    key: Tensor
    text: Tensor
    token: Tensor
    strength: Tensor
    keys: Tensor  # (n, KEYS), −1 where there is none
    weights: Tensor

    def at(self, index: Tensor) -> KeptRows:
        """Some of them."""
        return KeptRows(*(one[index] for one in self))


class _Choice(NamedTuple):
    """n rows of a batch: see KeptRows; batch and row: where they stand in it."""

    place: Tensor
    key: Tensor
    batch: Tensor
    row: Tensor


class Reservoir:
    """The rows of all heads of a model that are kept, in each group those of least keys; heads count through layers."""

    def __init__(self, heads: int, device: torch.device | str = "cpu") -> None:
        self._kept = torch.tensor(KEPT, device=device).repeat(heads)  # of each place
        self._limits = torch.full_like(self._kept, _FULL)  # keys from which on a row is not kept
        none, many = torch.zeros(0, dtype=torch.long, device=device), torch.zeros(0, KEYS, device=device)
        self._rows = KeptRows(none, none, none, none, none.double(), many.long(), many.double())
        self._texts: dict[int, tuple[Tensor, Tensor]] = {}  # ids and padding, (T,) each, by the text's number
        self._examples: dict[tuple[int, int, int], ExampleRow] = {}  # those read before, by place, text and token

    def add(self, records: Sequence[Record], first_heads: Sequence[int], tokens: RowTokens) -> None:
        """Choose rows of layers of a forward that read these tokens; first_heads: the number of the first of each."""
        able = [
            (record, first)
            for record, first in zip(records, first_heads, strict=True)
            if record.attends_to_itself and record.kept and record.has("largest") and record.sizes[2] == record.sizes[3]
        ]
        if tokens.ids is None or tokens.numbers is None or tokens.keys is None or not able or not tokens.ids.numel():
            return
        largest = torch.cat([record.read("largest").detach() for record, _ in able], 1).double()
        heads = torch.cat([first + torch.arange(record.sizes[1]) for record, first in able]).to(largest.device)
        several = torch.cat([record.visible()[0] for record, _ in able], 1) > 1  # NaN is not more than 1
        choice = self._chosen(largest, several & ~largest.isnan(), tokens.numbers, heads)
        if not len(choice.place):
            return
        for text, ids, real in zip(tokens.keys.tolist(), tokens.ids, tokens.real, strict=True):
            self._texts[text] = ids.clone(), ~real  # of their own: a view would keep the whole batch
        firsts = torch.tensor([first for _, first in able], device=heads.device)
        edges = torch.searchsorted(choice.place, firsts * GROUPS).tolist()
        parts = [
            self._looks(record, tokens, first, _Choice(*(one[start:end] for one in choice)))
            for (record, first), start, end in zip(able, edges, [*edges[1:], len(choice.place)], strict=True)
            if end > start
        ]
        self._merge(KeptRows(*(torch.cat(columns) for columns in zip(self._rows, *parts, strict=True))))

    def _chosen(self, largest: Tensor, may_choose: Tensor, numbers: Tensor, heads: Tensor) -> _Choice:
        """The rows of a batch that are kept, in the order of their places; largest: (B, n, T) of these heads."""
        strength = largest.clamp(0, 1).nan_to_num(0.0)
        weakness = _GRID - (strength * _GRID).round().long()
        wide = numbers[:, None].expand_as(weakness)
        groups = torch.stack(
            [
                (strength * STRENGTHS).long().clamp(max=STRENGTHS - 1),
                torch.full_like(weakness, UNIFORM),
                torch.full_like(weakness, STRONGEST),
            ]
        )
        keys = torch.stack([wide, wide, (weakness << 48) | (wide >> 15)])
        places = groups + heads[:, None] * GROUPS
        group, batch, head, row = (may_choose & (keys < self._limits[places])).nonzero(as_tuple=True)
        found = _Choice(places[group, batch, head, row], keys[group, batch, head, row], batch, row)
        order = _in_order(found.place, found.key)
        place = found.place[order]
        order = order[_rank(place) < self._kept[place]]
        return _Choice(*(one[order] for one in found))

    def _looks(self, record: Record, tokens: RowTokens, first: int, choice: _Choice) -> KeptRows:
        """Where the chosen rows of one layer look."""
        assert tokens.keys is not None
        device = choice.row.device
        before = (tokens.at < 0).sum(1).to(device)[choice.batch]  # padding in front of the text
        head = choice.place // GROUPS - first
        strength = record.read("largest").detach()[choice.batch, head, choice.row].double()
        weights = on_demand.weights_of_rows(record.call(0), record.lse(0), choice.batch, head, choice.row)
        best, at = weights.topk(min(KEYS, weights.shape[1]), dim=-1)
        at = torch.where(best >= FEW, at - before[:, None], -1)
        missing = (0, KEYS - best.shape[1])
        at, best = (torch.nn.functional.pad(one, missing, value=value) for one, value in ((at, -1), (best, 0.0)))
        text = tokens.keys.to(device)[choice.batch]
        return KeptRows(choice.place, choice.key, text, choice.row - before, strength, at, best.double())

    def _merge(self, rows: KeptRows) -> None:
        """Keep of these rows those with the least keys, each once."""
        rows = rows.at(_in_order(rows.place, rows.key, rows.text, rows.token))
        same = torch.stack([one[1:] == one[:-1] for one in rows[:4]]).all(0)
        rows = rows.at(torch.cat([~same[:1] | True, ~same]) if len(same) else torch.ones_like(rows.place).bool())
        rank = _rank(rows.place)
        last = rank == self._kept[rows.place] - 1
        self._limits = self._limits.index_put((rows.place[last],), rows.key[last])
        self._rows = rows.at(rank < self._kept[rows.place])
        if len(self._texts) > _TEXTS:
            self._texts = {text: self._texts[text] for text in set(self._rows.text.tolist())}

    def samples(self, heads: Sequence[int], reader: TokenReader | None) -> list[Samples]:
        """Those of layers of so many heads, with their tokens as text."""
        result = [Samples(size) for size in heads]
        owners = [(layer, head) for layer, size in enumerate(heads) for head in range(size)]
        cut = None if reader is None else Excerpts(reader)
        before, self._examples = self._examples, {}  # few rows are new since the samples were last asked for
        for place, key, text, token, strength, keys, weights in zip(*(one.tolist() for one in self._rows), strict=True):
            layer, head = owners[place // GROUPS]
            example = before.get((place, text, token))
            if example is None:
                count = sum(one >= 0 for one in keys)
                ids, padding = (one.tolist() for one in self._texts[text])
                pieces = {} if cut is None else cut(ids, padding, token, keys[:count])
                example = ExampleRow(text, token, strength, tuple(keys[:count]), tuple(weights[:count]), pieces)
            self._examples[place, text, token] = example
            result[layer].put(head, place % GROUPS, key, example)
        return result


class Excerpts:
    """Reads the tokens around a row and around its keys, and of the rest of the text as little as they depend on."""

    def __init__(self, reader: TokenReader) -> None:
        self._reader, self._edges = reader, lru_cache(maxsize=1 << 16)(reader.edges)

    def __call__(
        self, ids: Sequence[int], padding: Sequence[bool], token: int, keys: Sequence[int]
    ) -> dict[int, ExcerptToken]:
        """By their position in the text without its padding; token and keys are such positions, too."""
        first = next((at for at, padded in enumerate(padding) if not padded), 0)
        wanted = {first + at for at in range(token - BEFORE, token + AFTER + 1)}
        wanted |= {first + at for key in keys for at in range(key - BESIDE, key + BESIDE + 1)}
        inside = [at for at in sorted(wanted) if first <= at < len(ids) and not padding[at]]
        pieces = {}
        for _, run in groupby(enumerate(inside), key=lambda one: one[1] - one[0]):
            places = [at for _, at in run]
            low, high = self._around(ids, places[0], places[-1] + 1)
            text = self._reader.read(ids[low:high], padding[low:high])
            for at in places:
                here = at - low
                pieces[at - first] = ExcerptToken(text.pieces[here], text.continues[here], text.parts.get(here, ""))
        return pieces

    def _around(self, ids: Sequence[int], low: int, high: int) -> tuple[int, int]:
        """The tokens that decide what those from low to high are: up to the next ones that are whole characters."""
        if not self._reader.by_neighbours:
            return 0, len(ids)
        low = max(low - 1, 0)
        while low > 0 and self._edges(ids[low]) is None:
            low -= 1
        while high < len(ids) and self._edges(ids[high - 1]) is None:
            high += 1
        return low, high


def _in_order(*columns: Tensor) -> Tensor:
    """The order that sorts by the first column, equal ones by the second, and so on."""
    order = columns[-1].argsort(stable=True)
    for column in columns[-2::-1]:
        order = order[column[order].argsort(stable=True)]
    return order


def _rank(places: Tensor) -> Tensor:
    """How many rows of the same place come before; places are in order.

    >>> _rank(torch.tensor([3, 3, 5, 5, 5]))
    tensor([0, 1, 0, 1, 2])
    """
    return torch.arange(len(places), device=places.device) - torch.searchsorted(places, places)

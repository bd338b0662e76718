"""Views of a report: one layer, one head. They hold no numbers of their own; all are read from the record."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.attention.call import QK
from regard.heads.calls.basis import Basis
from regard.heads.calls.visibility import row_tiles, visible_tile
from regard.heads.measure import on_demand
from regard.heads.measure.on_demand import MAP, TOP
from regard.heads.measure.registry import BY_NAME, COLUMNS, ROWS, Statistic, explain_headings, with_headings
from regard.heads.report.record import Record, inside
from regard.heads.report.roles import Role, Tally
from regard.heads.report.texts import find_word, texts_of
from regard.heads.report.written import WrittenHead, WrittenView
from regard.support.drawing import ShownAsWidget, as_figure
from regard.support.tokens import TextTokens

if TYPE_CHECKING:
    from regard.heads.report.report import Seen

Index = int | str | slice | Sequence[int | str] | Tensor | None


class Top(NamedTuple):
    """The largest weights of each query, largest first; key −1 and weight 0 past the visible ones."""

    keys: Tensor
    weights: Tensor


def basis_of(record: Record) -> Basis:
    """How a layer is known: by its first step of which something must be said."""
    bases = [step.call.origin.basis for step in record.steps]
    return next((basis for basis in bases if basis.marks), bases[0])


class _View(WrittenView, ShownAsWidget):
    """What a layer and a head have in common: every statistic of the registry by its name, exact weights on demand.

    *H in the shapes is the axis of heads, which a head does not have.
    """

    def __init__(self, record: Record, layer: int, seen: Seen, head: int | None = None) -> None:
        self.record, self.layer = record, layer
        self.seen = seen  # the report that it is a part of
        self._index = slice(None) if head is None else head  # on the axis of heads
        self._heads = range(record.sizes[1]) if head is None else [head]

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Tensor: ...

    def _joined(self, each: Sequence[Tensor]) -> Tensor:
        """What was computed for each of its heads."""
        return torch.stack(list(each), 1) if isinstance(self._index, slice) else each[0]

    def _tally(self) -> Tally:
        return self.seen.tally(self.layer)

    @property
    def basis(self) -> Basis:
        """How it is known that these are weights, where heads, positions, padding and tokens are."""
        return basis_of(self.record)

    @property
    def marks(self) -> tuple[str, ...]:
        """What is assumed about this layer, or unknown; empty where all is known."""
        return self.basis.marks

    @property
    def query_tokens(self) -> list[TextTokens] | None:
        """The tokens of the queries, a TextTokens for each text of the batch; None where they are unknown."""
        return texts_of(self.record).queries

    @property
    def key_tokens(self) -> list[TextTokens] | None:
        """The tokens of the keys: in self-attention those of the queries, in cross-attention those of another text."""
        return texts_of(self.record).keys

    @property
    def context(self) -> Float[Tensor, "B *H T D"]:
        """What each head handed over, weights · values, where it was kept: watch(model, values=True)."""
        return self.record.context()[:, self._index]

    @property
    def histogram(self) -> Float[Tensor, "B *H T bins"]:
        """The weight at distance 0, 1, 2–3, 4–7, 8–15 and so on."""
        return self._joined([self.record.histogram(head) for head in self._heads])

    def top(self, n: int = TOP) -> Top:
        """The n largest weights of each query and their keys, (B, T, n) each, exact; in a layer (B, H, T, n)."""
        _at_least_one(n, "top")
        keys, weights = zip(*(self.record.top(head, n) for head in self._heads), strict=True)
        return Top(self._joined(keys), self._joined(weights))

    def map(self, n: int = MAP) -> Float[Tensor, "B *H rows cols"]:
        """The T × S weights, mean-pooled to at most n × n cells."""
        _at_least_one(n, "map")
        return self._joined([self.record.map(head, n) for head in self._heads])

    def weights(self, rows: Index = None, cols: Index = None, text: int | None = None) -> Float[Tensor, "B *H R C"]:
        """The exact weights of these queries and keys, (B, R, C), computed on demand; in a layer (B, H, R, C).

        Rows and columns are a number, a slice, a list or a tensor of numbers, or words: "sat", "the@4", ["cat", "sat"].
        A word of several tokens is all of them. None is every row or column, and all rows with all columns are the
        full T × S matrix.
        text: only this text of the batch, (1, R, C), for words that are at another position in each. [default: all]
        """
        B = self.record.sizes[0]
        text = None if text is None else place(text, B, "text", f"there are {B}")
        queries, keys = numbers_of(self.record, rows, "row", text), numbers_of(self.record, cols, "column", text)
        return self._joined([self.record.weights(head, queries, keys, text) for head in self._heads])

    def _visible_keys(self, rows: Int[Tensor, "R"], text: int | None = None) -> Bool[Tensor, "B *H R S"]:
        """Which keys these queries may see; none in rows that do not count. text: only this text of the batch."""
        B, H, _, S = self.record.sizes
        B, chosen = (B, slice(None)) if text is None else (1, slice(text, text + 1))
        rows = rows.cpu()
        result = torch.zeros(B, H, len(rows), S, dtype=torch.bool)
        for own_rows, keys, call, lse in self.record.calls():
            mine = inside(own_rows, rows)
            local = (rows[mine] - own_rows.start).to(call.device)
            visible = visible_tile(call, local)
            visible = visible if visible.shape[0] == 1 else visible[chosen]
            result[:, :, mine, keys] = (visible & on_demand.counted(call, lse)[chosen, :, local, None]).cpu()
        return result[:, self._index]

    def visible_cells(self, n: int = MAP) -> Bool[Tensor, "B *H rows cols"]:
        """Which cells of map(n) hold a key that a query of the cell may see."""
        B, H, T, S = self.record.sizes
        self.record.need(f"visible_cells({n})")
        seen = torch.zeros(B, H, min(n, T), min(n, S))
        for own_rows, keys, call, lse in self.record.calls():
            lines = on_demand.cells(torch.arange(own_rows.start, own_rows.stop), T, seen.shape[2])
            columns = on_demand.cells(torch.arange(keys.start, keys.stop), S, seen.shape[3])
            counts = on_demand.counted(call, lse).cpu()
            for rows in row_tiles(call):
                tile, rows = visible_tile(call, rows).cpu().float(), rows.cpu()
                narrow = tile.new_zeros(*tile.shape[:3], seen.shape[3]).index_add_(3, columns, tile)
                seen.index_add_(2, lines[rows], narrow.expand(B, H, -1, -1) * counts[:, :, rows, None])
        return seen[:, self._index] > 0


def _property(statistic: Statistic) -> property:
    return property(lambda view: view.record.read(statistic.name)[:, view._index], doc=statistic.about)


for _name in (*ROWS, *COLUMNS):
    setattr(_View, _name, _property(BY_NAME[_name]))


class Head(_View, WrittenHead):
    """One head: `seen[5, 1]`. Statistics are (B, T), those of keys (B, S)."""

    def __init__(self, record: Record, layer: int, seen: Seen, head: int) -> None:
        super().__init__(record, layer, seen, head)
        self.head = head

    @property
    def name(self) -> str:
        """The module it ran in, and its number there."""
        return f"{self.record.name or 'model'}[{self.head}]"

    @property
    def role(self) -> Role:
        """What the head seems to do, with the evidence."""
        return self._tally().role(self.head)

    @property
    def summary(self) -> dict[str, float]:
        """The mean of every row statistic; rows without a value are left out."""
        return self._tally().means(self.head)

    def visible(self, rows: Index = None) -> Bool[Tensor, "B R S"]:
        """Which keys these queries may see; none in rows that are padding."""
        return self._visible_keys(numbers_of(self.record, rows, "row"))

    def score_parts(self) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B S D"], Float[Tensor, "B T"], float, bool]:
        """q, k, lse, scale and whether a causal mask hides keys: any weight is exp(scale · q·k − lse).

        Only for one call with a causal mask or none.
        """
        self.record.need("score_parts()")
        (_, _, call, lse), *others = self.record.calls()
        attention, parts = call.attention, call.attention.mask.parts()
        masks = (parts.rest, parts.window, parts.keys, call.origin.real)
        plain = isinstance(attention, QK) and attention.bias is None and attention.alibi is None
        if others or not all(part is None for part in masks) or not isinstance(attention, QK) or not plain:
            raise ValueError(
                f"score_parts() needs one call whose scores are q · k alone, under a causal mask or none; {self.name} "
                "has another mask, a bias, several steps or weights of its own; ask for weights(rows, cols)"
            )
        shared = attention.q.shape[1] // attention.k.shape[1]
        q, k = attention.q[:, self.head], attention.k[:, self.head // shared]
        return q.float(), k.float(), lse[:, self.head].float(), attention.scale, parts.causal

    def plot(
        self, ax: Any = None, text: int = 0, rows: Index = None, cols: Index = None, width: float | None = None
    ) -> Any:
        """The weights as a heat map; returns its matplotlib Axes.

        text: the text of the batch. rows, cols: queries and keys, as in weights(). ax: draw into this Axes, else into a
        new figure that is `width` inches wide. [default: 3.3] More than 512 queries or keys are drawn pooled.
        """
        return as_figure(self, ax=ax, text=text, rows=rows, cols=cols, width=width)

    def __repr__(self) -> str:
        means = with_headings(self.summary)
        numbers = "  ".join(f"{name} {value:.2f}" for name, value in means.items())
        first = f"{self.layer}.{self.head}  {self.name}"
        return "\n  ".join([first, str(self.role), numbers, *explain_headings(means), *self.marks])


class SeenLayer(_View):
    """One layer: `seen[5]`. The same as a head's statistics with an axis of heads: (B, H, T), (B, H, S)."""

    def __len__(self) -> int:
        return self.record.sizes[1]

    def __iter__(self) -> Iterator[Head]:
        return (self[head] for head in range(len(self)))

    def __getitem__(self, head: int) -> Head:
        number = place(head, len(self), "head", f"{self.name} has {len(self)} heads")
        return Head(self.record, self.layer, self.seen, number)

    @property
    def name(self) -> str:
        """The module it ran in."""
        return self.record.name or "model"

    @property
    def roles(self) -> list[Role]:
        """What each head seems to do."""
        return [self._tally().role(head) for head in range(len(self))]

    @property
    def summary(self) -> list[dict[str, float]]:
        """The means of each head."""
        return [self._tally().means(head) for head in range(len(self))]

    @property
    def kv_heads(self) -> int:
        """How many key heads there are; fewer than heads in grouped-query attention."""
        attention = self.record.steps[0].call.attention
        return attention.k.shape[1] if isinstance(attention, QK) else len(self)

    @property
    def hides_future(self) -> bool:
        """Does a causal mask hide every key after its query? False also where only the cells of a mask could tell."""
        _, _, T, S = self.record.sizes
        steps = self.record.steps
        return T == S and len(steps) == 1 and steps[0].call.attention.mask.parts().causal

    def visible(self, text: int | None = None) -> Bool[Tensor, "B H T S"]:
        """Which keys each query may see; rows of padding see none. text: only this one."""
        return self._visible_keys(torch.arange(self.record.sizes[2]), text)

    def queries_per_key(self) -> Tensor:
        """(B, H, S): how many queries may see each key. received ÷ this is the mean weight that a key gets."""
        return self.record.queries_per_key()

    def __repr__(self) -> str:
        _, H, T, S = self.record.sizes
        return f"{self.layer}  {self.name}: {H} heads, {T} queries, {S} keys; one of them: seen[{self.layer}, 0]"


def place(number: object, size: int, what: str, how_many: str) -> int:
    """An index of `size` things from 0; negative ones are counted from the end."""
    try:
        index = operator.index(number)  # type: ignore[arg-type]
    except TypeError:
        raise ValueError(f"a {what} is chosen by a whole number, not by {number!r}") from None
    if not -size <= index < size:
        raise ValueError(f"{what} {index} does not exist: {how_many}, 0 to {size - 1}")
    return index % size


def numbers_of(record: Record, chosen: Index, what: str, text: int | None = None) -> Int[Tensor, "n"]:
    """Rows or columns of a record in any accepted form, also as words, as a tensor of numbers on its device."""
    texts, is_column = texts_of(record), what == "column"
    size, device = record.sizes[2 + is_column], record.steps[0].call.device
    if chosen is None:
        return torch.arange(size, device=device)
    if isinstance(chosen, slice):
        return torch.tensor(range(size)[chosen], dtype=torch.long, device=device)
    numbers: list[Any] = []
    for one in _listed(chosen):
        known = texts.keys if is_column else texts.queries
        numbers += find_word(one, known, texts.unknown, text) if isinstance(one, str) else [one]
    if numbers and all(isinstance(number, bool) for number in numbers):
        if len(numbers) != size:
            raise ValueError(f"a choice of {what}s by True and False needs {size} of them; this has {len(numbers)}")
        numbers = [number for number, wanted in enumerate(numbers) if wanted]
    places = [place(number, size, what, f"there are {size}") for number in numbers]
    return torch.tensor(places, dtype=torch.long, device=device)


def _listed(chosen: Any) -> list[Any]:
    """A number or word, or a list, tensor or array of them, as a list."""
    if hasattr(chosen, "tolist"):  # tensors and arrays, also of one number
        chosen = chosen.tolist()
    if isinstance(chosen, str):
        return [chosen]
    return [number for one in chosen for number in _listed(one)] if isinstance(chosen, Sequence) else [chosen]


def _at_least_one(n: int, what: str) -> None:
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ValueError(f"{what}({n}) must ask for a whole number of at least 1")

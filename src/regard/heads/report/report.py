"""A report: every head of every layer that ran, in a table, by number, as a file."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, overload
from weakref import ReferenceType, WeakKeyDictionary, ref

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.heads.calls.call import WatchedCall, names_in_short
from regard.heads.inputs.pieces import TextReader
from regard.heads.measure.registry import AVERAGED
from regard.heads.report.files import load_report, save_report
from regard.heads.report.forwards import Collection, Forward, Slot
from regard.heads.report.listings import Comparison, HeadList, HeadSummary, TokenInHeads, compare, sort_heads
from regard.heads.report.record import Record
from regard.heads.report.roles import NAMES, Role, Tally
from regard.heads.report.texts import find_word, texts_of
from regard.heads.report.views import Head, Index, SeenLayer, basis_of, numbers_of, place
from regard.support.drawing import ShownAsWidget, as_figure, as_html, as_page, as_text, as_widget
from regard.support.files import atomically
from regard.support.tokens import TextTokens

Layers = int | str | Sequence[int | str] | None  # numbers or names


_MODELS: WeakKeyDictionary[Seen, ReferenceType[nn.Module]] = WeakKeyDictionary()  # that reports are of


def remember_model(seen: Seen, model: nn.Module) -> None:
    """The model that a report is of, for as long as both are there; it is no part of the report."""
    _MODELS[seen] = ref(model)


def watched_model(seen: Seen) -> nn.Module:
    """The model that a report is of."""
    model = _MODELS[seen]() if seen in _MODELS else None
    if model is None:
        raise ValueError(
            "live=True needs the model that was watched, and it is gone, or the report is from a file; "
            "write the page where the model is, or in a terminal: regard page --live"
        )
    return model


class Seen(Collection, ShownAsWidget):
    """Every head of a model, measured while it ran.

    >>> from regard.attention.masks import causal
    >>> from regard.attention.call import QK
    >>> from regard.heads.calls.call import Origin, WatchedCall
    >>> seen = Seen()
    >>> q = k = torch.eye(5).view(1, 1, 5, 5)
    >>> seen.add(0, 0, WatchedCall(QK(q=q, k=k, scale=50.0, mask=causal()), Origin("attention")))
    >>> seen[0, 0].role.name
    'self'
    >>> seen[0, 0].weights(rows=4).round()
    tensor([[[0., 0., 0., 0., 1.]]])

    `seen` prints as a table, and is a page in a notebook; `seen[5, 1]` is a head, `seen[5]` a layer (by number or by
    name). Steps of a generation are joined into one forward; other runs stay separate in `seen.forwards`, and the table
    averages over them. `seen.heads(role="induction")` chooses heads, and `seen.at("sat")` shows one token in all.

    collect: names of statistics; "default" is the default set. keep: keep queries and keys, from which top, map,
    weights and rollout are computed later; by default they are kept, and weights that a model computes itself are kept
    up to 256 MiB in total. reader: reads token ids as texts.
    """

    def __init__(
        self, collect: Iterable[str] | None = None, keep: bool | None = None, reader: TextReader | None = None
    ) -> None:
        super().__init__(collect, keep, reader)
        self.on_call: Callable[[int, int], None] | None = None  # called with forward and layer after each call
        self._tallies: dict[int, Tally] = {}

    @classmethod
    def of(cls, forwards: Sequence[Forward], collect: frozenset[str], keep: bool | None) -> Seen:
        """A report of forwards that were collected before."""
        seen = cls(collect, keep)
        seen._past = list(forwards)
        return seen

    def add(self, forward: int, layer: int, call: WatchedCall) -> None:
        """Keep of a call what was asked for, and measure it: now, or soon, together with others."""
        super().add(forward, layer, call)
        self._tallies.clear()
        if self.on_call is not None:
            self.on_call(forward, layer)

    def drop(self, forward: int, layer: int) -> None:
        """Forget the calls of the forward that is running, from this layer on: a module raised an error."""
        super().drop(forward, layer)
        self._tallies.clear()

    @property
    def forwards(self) -> list[Seen]:
        """The runs of the model, each a report of its own."""
        return [Seen.of([forward], self.collect, self.keep) for forward in self._forwards]

    @property
    def tokens(self) -> list[TextTokens] | None:
        """The tokens of each text of the batch; None where token ids or tokenizer are unknown."""
        self._need_one_forward("tokens")
        texts: list[list[TextTokens]] = []
        for layer in self:
            tokens = layer.key_tokens
            if tokens is not None and not layer.record.across and tokens not in texts:
                texts.append(tokens)
        if len(texts) > 1:
            raise ValueError(f"the layers read {len(texts)} different texts; choose a layer: seen[0].query_tokens")
        return texts[0] if texts else None

    def _need_one_forward(self, what: str) -> None:
        if len(self._forwards) > 1:
            raise ValueError(f"{len(self._forwards)} forwards were seen; choose one: seen.forwards[0].{what}")

    def _records(self) -> list[list[Record]]:
        """The layers, each with its records in the forwards that ran it."""
        layers: dict[Slot, list[Record]] = {}
        for forward in self._forwards:
            for slot, record in forward.records.items():
                layers.setdefault(slot, []).append(record)
        return list(layers.values())

    def sizes(self) -> list[list[tuple[int, int, int, int]]]:
        """(B, H, T, S) of each layer, in each forward that ran it."""
        return [[record.sizes for record in records] for records in self._records()]

    @property
    def layers(self) -> list[str]:
        """The modules that attended, in order."""
        return [records[0].name for records in self._records()]

    def __len__(self) -> int:
        return len(self._records())

    def __iter__(self) -> Iterator[SeenLayer]:
        layers = enumerate(self._records())  # found once: looking for each would take the square of their number
        return (SeenLayer(one[0], number, self) if len(one) == 1 else self[number] for number, one in layers)

    @overload
    def __getitem__(self, key: tuple[int | str, int]) -> Head: ...
    @overload
    def __getitem__(self, key: int | str) -> SeenLayer: ...
    def __getitem__(self, key: int | str | tuple[int | str, int]) -> Head | SeenLayer:
        if isinstance(key, tuple) and len(key) != 2:
            raise ValueError(f"seen[layer] is a layer and seen[layer, head] a head; this has {len(key)} numbers")
        layer, head = key if isinstance(key, tuple) else (key, None)
        number, records = self._find(layer)
        if len(records) > 1:
            first = next(i for i, one in enumerate(self._forwards) if records[0] in one.records.values())
            there = layer if isinstance(layer, str) else list(self._forwards[first].records.values()).index(records[0])
            how = f"seen.forwards[{first}][{there!r}{'' if head is None else f', {head}'}]"
            raise ValueError(f"{len(self._forwards)} forwards were seen; choose one: {how}")
        view = SeenLayer(records[0], number, self)
        return view if head is None else view[head]

    def _find(self, layer: int | str) -> tuple[int, list[Record]]:
        """A layer's number, 0 to len(seen) − 1, and its records."""
        layers = self._records()
        if isinstance(layer, str):
            names = [records[0].name for records in layers]
            if names.count(layer) != 1:
                fault = "no layer is" if layer not in names else f"{names.count(layer)} layers are"
                raise ValueError(f"{fault} called {layer!r}; choose by number, or one of {names_in_short(names)}")
            number = names.index(layer)
        else:
            number = place(layer, len(layers), "layer", f"this report has {len(layers)} layers")
        return number, layers[number]

    def tally(self, number: int) -> Tally:
        """The means and roles of a layer."""
        return self._tally(number, None)

    def _tally(self, number: int, records: list[Record] | None) -> Tally:
        if number not in self._tallies:
            self._tallies[number] = Tally.of(self._records()[number] if records is None else records)
        return self._tallies[number]

    def portraits(self) -> dict[tuple[int, int], HeadSummary]:
        """The role and the means of every head, by (layer, head)."""
        portraits = {}
        for number, records in enumerate(self._records()):
            tally, keys = self._tally(number, records), max(record.sizes[3] for record in records)
            marks = tuple(dict.fromkeys(mark for one in records for mark in basis_of(one).marks))
            for head in range(records[0].sizes[1]):
                portraits[number, head] = HeadSummary(tally.role(head), tally.means(head), keys, marks)
        return portraits

    def order(self, layer: int | str | None = None) -> list[tuple[int, int]]:
        """(layer, head) as the table lists them: grouped by role, the clearest first."""
        chosen = None if layer is None else self._find(layer)[0]
        roles = {key: one.role for key, one in self.portraits().items() if chosen in (None, key[0])}
        return sorted(roles, key=lambda key: rank_of(roles[key]))  # stable: equal roles stay in order

    def heads(
        self,
        role: str | Iterable[str] | None = None,
        layer: Layers = None,
        by: str | None = None,
        descending: bool | None = None,
    ) -> HeadList:
        """The heads with this role, in this layer, sorted by the mean of a statistic; prints as a table.

        role: one of docs/watch.md, or several: ["induction", "duplicate"]. [default: every role]
        layer: number or name, or several. [default: every layer]
        by: a statistic, such as "entropy", or "score", that of the role. [default: grouped by role, the clearest first]
        descending: the largest first. [default: yes]
        """
        self._need_one_forward("heads(…)")
        portraits, layers = self.portraits(), self._numbers(layer)
        roles = NAMES if role is None else [role] if isinstance(role, str) else list(role)
        if unknown := [one for one in roles if one not in NAMES]:
            raise ValueError(f"no role is called {unknown[0]!r}; roles are {', '.join(NAMES)}")
        if by is None and descending is not None:
            raise ValueError(f"descending={descending} needs a statistic to sort by, such as by='entropy'")
        if by is not None and by not in (*AVERAGED, "score"):
            raise ValueError(f"heads cannot be sorted by {by!r}; by is one of {', '.join((*AVERAGED, 'score'))}")
        keys = [key for key in self.order() if portraits[key].role.name in roles and key[0] in layers]
        keys = keys if by is None else sort_heads(keys, portraits, by, descending is not False)
        views = list(self)
        return HeadList(
            [views[layer][head] for layer, head in keys], [portraits[key] for key in keys], f"of {len(portraits)} heads"
        )

    def at(self, token: int | str, text: int | None = None, layers: Layers = None) -> TokenInHeads:
        """One token in every head: where it looks and who looks at it, the most telling head first.

        token: a word, "sat" or "the@4", or a position. text: the text of the batch, where there are several. layers:
        number or name, or several, for models that read several texts. [default: all]
        """
        self._need_one_forward(f"at({token!r})")
        chosen = [self[number] for number in self._numbers(layers)]
        if not chosen:
            raise ValueError(f"a token needs at least one layer; {len(self)} were seen and 0 chosen")
        first, texts = chosen[0], chosen[0].query_tokens
        B, _, T, _ = first.record.sizes
        if other := [one for one in chosen if (one.query_tokens, one.record.sizes[2]) != (texts, T)]:
            raise ValueError(
                f"layers {first.layer} ({first.name}) and {other[0].layer} ({other[0].name}) have other queries, so "
                f"{token!r} is not one token; choose layers of one text: seen.at({token!r}, layers=[…])"
            )
        if text is None and B > 1:
            raise ValueError(f"{B} texts were seen; choose one: seen.at({token!r}, text=0)")
        number = 0 if text is None else place(text, B, "text", f"there are {B}")
        if isinstance(token, str):
            row = texts[number].find(token) if texts else find_word(token, None, texts_of(first.record).unknown).start
        else:
            row = place(token, T, "token", f"there are {T}")
        return TokenInHeads(chosen, row, number)

    def _numbers(self, layers: Layers) -> Sequence[int]:
        """The numbers of layers that were chosen by number or name; None is all of them."""
        layers = [layers] if isinstance(layers, (int, str)) else layers
        return range(len(self)) if layers is None else [self._find(layer)[0] for layer in layers]

    def summary(self) -> dict[str, Any]:
        """All means as plain numbers, ready for JSON; None where no row has a value.

        {"forwards": 1, "layers": [{"name": "h.0.attn", "heads": [{"role": "mixed", "entropy": 1.2, …}, …]}, …]}
        """
        layers: list[dict[str, Any]] = [{"name": name, "heads": []} for name in self.layers]
        for (number, _), one in self.portraits().items():
            means = {name: None if math.isnan(mean) else mean for name, mean in one.means.items()}
            if one.marks:
                layers[number]["marks"] = list(one.marks)
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
            for (layer, head), one in self.portraits().items()
        ]
        return pandas.DataFrame(rows)

    def compare(self, other: Seen) -> Comparison:
        """Which heads changed from this report to the other: between checkpoints, or between prompts."""
        return compare(self.portraits(), other.portraits())

    @torch.no_grad()
    def rollout(self, tokens: Index, layers: Layers = None, text: int | None = None) -> Float[Tensor, "B n S"]:
        """How much of each input token is in these tokens after all layers, (B, n, S), without a T × T matrix.

        The product over layers of ½ · (mean of the heads' weights) + ½ · identity, only the rows of `tokens`
        (attention rollout, arXiv:2005.00928). `tokens` are positions or words. `layers` chooses the layers, for models
        that have several stacks; `text` one text of the batch, (1, n, S).
        """
        chosen = [self._find(number) for number in self._numbers(layers)]
        if any(len(records) > 1 for _, records in chosen):
            self._need_one_forward("rollout(…)")
        if not chosen:
            raise ValueError(f"a rollout needs at least one layer; {len(self)} were seen and 0 chosen")
        first = chosen[0][1][0]
        B, _, T, _ = first.sizes
        sizes = [records[0].sizes[2:] for _, records in chosen]
        if set(sizes) != {(T, T)}:
            listed = ", ".join(f"{n}: {T} × {S}" for (n, _), (T, S) in zip(chosen, sizes, strict=True))
            raise ValueError(
                f"a rollout needs layers in which one text attends to itself, all of one length; these are {listed} "
                "(queries × keys); choose some with layers=[…]"
            )
        text = None if text is None else place(text, B, "text", f"there are {B}")
        rows = numbers_of(first, tokens, "token", text)
        amounts = torch.zeros(B, len(rows), T, device=rows.device)
        amounts[:, torch.arange(len(rows), device=rows.device), rows] = 1.0
        for _, records in reversed(chosen):
            amounts = amounts / 2 + records[0].carry(amounts) / 2
        return amounts if text is None else amounts[text : text + 1]

    def save(self, path: str | Path, keep: bool | None = None) -> None:
        """Write the report to one safetensors file; keep=False leaves out queries and keys, which are most of it."""
        save_report(path, (self._forwards, self.collect, self.keep), keep)

    def table(
        self, width: int = 80, all: bool = False, layer: int | str | None = None, more: str = "seen.table(all=True)"
    ) -> str:
        """The heads as aligned text, grouped by role, rare ones first; all=True shows every head, `more` says how."""
        return as_text(self, width, all=all, layer=layer, more=more)

    def to_html(
        self, path: str | Path, title: str = "", effects: Any = None, steps: Any = None, live: bool = False
    ) -> None:
        """Write the report as a page: one HTML file with every head, which opens offline.

        effects: of regard.effect. steps: of layers of regard, {4: trace}, for the view Steps; of the first text.
        live: the page holds the model, a regard.GPT, and runs it: text can be typed, heads be cut. It has all steps.
        """
        page = as_page(self, title, effects=effects, steps=steps, live=watched_model(self) if live else None)
        with atomically(path) as temporary:
            temporary.write_text(page, encoding="utf-8")

    def widget(self, title: str = "", text: int | None = None, steps: Any = None) -> Any:
        """The same page as a widget in a notebook; needs anywidget, of the extra notebook.

        text: only this text of the batch. [default: the first eight]
        steps: of layers of regard, {4: trace}, for the view Steps; of the first text.
        """
        return as_widget(self, title, text=text, steps=steps)

    def plot(self, by: str | None = None, ax: Any = None, text: int | None = None, width: float | None = None) -> Any:
        """Every head as a small map, or as a cell coloured by "role" or the mean of a statistic: docs/figures.md."""
        return as_figure(self, by=by, ax=ax, text=text, width=width)

    def plot_layers(self, statistic: str, ax: Any = None, width: float | None = None) -> Any:
        """The mean of a statistic over layers: a dot for each head, and their mean as a line."""
        return as_figure(self, by=statistic, over="layers", ax=ax, width=width)

    def __repr__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return as_html(self)


def rank_of(role: Role) -> tuple[int, float]:
    """Induction first, mixed last; first token late, because many heads have it and few have the others."""
    if not role.clear:
        return len(NAMES) + (role.name == "mixed"), 0.0
    return len(NAMES) - 1 if role.name == "first token" else list(NAMES).index(role.name), -role.score


def load_seen(path: str | Path, device: torch.device | str = "cpu") -> Seen:
    """Read a report that was saved with seen.save(path).

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Seen().save(f"{folder}/empty.safetensors")
    ...     load_seen(f"{folder}/empty.safetensors")
      nothing was seen yet
    """
    return Seen.of(*load_report(path, device))

"""What a page holds: one JSON document that names everything, and blocks of bytes with the weights.

js/data/page-data.js documents the same structure from the reader's side.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from regard.heads.change.effects import Effects
from regard.heads.measure.registry import AVERAGED, BY_NAME, STATISTICS
from regard.heads.report.report import Seen
from regard.heads.report.roles import ROLES
from regard.show.page.encode import Encoding, compress, encode, highest_outside, strongest_keys, thumbnail
from regard.show.page.long import LONGEST_EXACT, LongLayer, exact_block
from regard.show.page.steps import LayerSizes, describe_steps
from regard.support.tokens import TextTokens
from regard.traces.trace import Trace

FORMAT = 1
BUDGET = 16_300_000  # bytes of all heads, compressed; base64 adds a third, which makes a page of 22 MB
COARSEST = 6  # steps of root7 that are tried to fit the budget; two of them double the error
_EVERY = (
    7  # of so many heads one is encoded to estimate the size of all; a prime, so that it is not the same in each layer
)
THUMBNAIL = 64  # rows and columns of a small picture of a head; smaller maps are shown as they are
_EFFECT = {
    "name": "effect",
    "label": "effect",
    "unit": "nats",
    "about": "By how much the loss per token grows when the head is cut; "
    "of chosen tokens, the drop of their log-probability.",
    "signed": True,
}


@dataclass(frozen=True)
class Titled:
    """A report for a page: one text of it, under a title. steps: traces of layers, by their number, of the same run."""

    title: str
    seen: Seen
    text: int = 0  # which text of the batch
    tokens: TextTokens | None = None  # in place of those that the report knows
    steps: Mapping[int, Trace] = field(default_factory=dict)
    exact: Sequence[tuple[int, int]] = ()  # (layer, head) of a long text whose every weight can be seen
    effects: Effects | None = None  # what each head's absence costs, to shade heads by


@dataclass
class PageData:
    """The document and the blocks of a page."""

    document: dict[str, Any]
    # gzip. The values are bytes; with Any, checking the types at run time computes none of on_demand.py.
    blocks: Mapping[str, Any] = field(default_factory=dict)


def page_data(reports: Sequence[Titled], budget: int = BUDGET, thumbnails: bool = False) -> PageData:
    """Everything that a page shows of these reports, in the most exact form that fits the budget.

    thumbnails: small pictures of all heads in one block also where the maps are small, for a page that asks for blocks
    one at a time. In a file they are drawn from the weights, which are there.
    """
    blocks: dict[str, bytes] = {}
    described = []
    for number, titled in enumerate(reports):
        one, of_report = _report(titled, number, budget // len(reports), thumbnails)
        described.append(one)
        blocks |= of_report
    return PageData(describe_page(described), blocks)


def describe_page(reports: list[dict[str, Any]]) -> dict[str, Any]:
    """The document of a page, from the descriptions of its reports."""
    return {
        "format": FORMAT,
        "statistics": [
            {"name": one.name, "label": one.heading, "unit": one.unit, "about": one.about, "signed": False}
            for one in STATISTICS
            if one.heading is not None
        ]
        + [_EFFECT]
        * any("effect" in one["means"] for report in reports for layer in report["layers"] for one in layer["heads"]),
        "averaged": [{"name": name, "label": BY_NAME[name].heading or name} for name in AVERAGED],
        "roles": [
            {"name": one.name, "short": one.short, "about": one.about, "glyph": one.glyph}
            | dict(zip(("light", "dark"), one.colors, strict=True))
            for one in ROLES.values()
        ],
        "reports": reports,
    }


def _report(titled: Titled, number: int, budget: int, thumbnails: bool) -> tuple[dict[str, Any], dict[str, bytes]]:
    seen = titled.seen
    maps = [_layer(seen, layer, titled.text) for layer in range(len(seen))]
    pictures = picture_size(maps, thumbnails)
    blocks = _small(maps, number, pictures)
    encodings, weights = _encoded(maps, number, budget - _size(blocks))
    blocks |= weights
    described = describe_report(titled, maps, encodings, described_heads(seen, titled.effects), pictures)
    if unknown := sorted(set(titled.steps) - set(range(len(seen)))):
        raise ValueError(f"steps has layer {unknown[0]}; this report has layers 0 to {len(seen) - 1}")
    for layer, head in titled.exact:
        _ = seen[layer, head]  # refuses a head that does not exist
        if isinstance(maps[layer], LongLayer):  # of a short text every weight is here
            exact, content = exact_block(seen, layer, head, titled.text)
            described["layers"][layer]["exact"][head] = exact
            blocks[f"exact.{number}.{layer}.{head}"] = compress(content)
    for layer, trace in titled.steps.items():
        H, T, S = maps[layer].sizes
        sizes, key = LayerSizes(H, maps[layer].kv_heads, T, S), f"steps.{number}.{layer}"
        described["layers"][layer]["steps"], of_steps = describe_steps(trace, sizes, titled.text, key)
        blocks |= of_steps
    return described, blocks


@runtime_checkable
class PageLayer(Protocol):
    """What is described of a layer. grid: of a text that is too long for all its weights."""

    @property
    def sizes(self) -> tuple[int, int, int]:
        """(H, T, S)"""

    @property
    def kv_heads(self) -> int:
        """How many key heads there are."""

    def grid(self) -> dict[str, int] | None:
        """The size of the grid."""


def described_heads(seen: Seen, effects: Effects | None = None) -> dict[str, Any]:
    """The heads of every layer, and their order; the same for all texts of a batch."""
    heads: list[list[dict[str, Any]]] = [[] for _ in seen.layers]
    portraits = seen.portraits()
    costs = {} if effects is None else {key: one.cost for key, one in effects.by_head().items()}
    if unmeasured := sorted(set(costs) - set(portraits)):
        layer, head = unmeasured[0]
        raise ValueError(f"effects has head {layer}.{head}, which this report does not have; measure the same model")
    for (layer, head), portrait in portraits.items():
        heads[layer].append(_head(portrait, costs.get((layer, head))))
    return {"heads": heads, "order": [list(place) for place in seen.order()]}


def describe_report(
    titled: Titled,
    maps: Sequence[PageLayer],
    encodings: Sequence[Encoding],
    heads: Mapping[str, Any],
    pictures: dict[str, int] | None,
) -> dict[str, Any]:
    """A report as the document of a page has it; heads as described_heads gives them, pictures as picture_size does."""
    seen, texts = titled.seen, _Sequences(titled)
    layers = []
    for layer, (name, one) in enumerate(zip(seen.layers, maps, strict=True)):
        _, T, S = one.sizes
        layers.append(
            {
                "name": name,
                "T": T,
                "S": S,
                "queries": texts.number(seen[layer].query_tokens, T),
                "keys": texts.number(seen[layer].key_tokens, S),
                "across": seen[layer].record.across,
                "kv_heads": one.kv_heads,
                "most": {name: BY_NAME[name].most(S) for name in AVERAGED},  # as a comparison scales the means
                "encoding": asdict(encodings[layer]),
                "grid": one.grid(),
                "exact": {},
                "heads": heads["heads"][layer],
                "steps": None,
                "without_steps": f"The steps of layer {layer} are not in this file. To add them: --steps {layer}",
                **({"marks": list(marks)} if (marks := seen[layer].marks) else {}),
            }
        )
    return {
        "title": _encodable(titled.title),
        "precision": _precision(encodings, long=any(one.grid() is not None for one in maps)),
        "sequences": [_sequence(one) for one in texts.all],
        "layers": layers,
        "order": heads["order"],
        "thumbnails": pictures,
    }


def picture_size(maps: Sequence[PageLayer], always: bool) -> dict[str, int] | None:
    """The size of small pictures of all heads; None where the maps are small enough to be drawn instead."""
    if not always and all(max(one.sizes[1:]) <= THUMBNAIL for one in maps):
        return None
    rows, cols = (min(THUMBNAIL, max(one.sizes[axis] for one in maps)) for axis in (1, 2))
    return {"rows": rows, "cols": cols}


def _small(maps: Sequence[_Layer | LongLayer], number: int, pictures: dict[str, int] | None) -> dict[str, bytes]:
    """What is read of all heads at once: the strongest key of each query, and small pictures."""
    content = b"".join(one.strongest(head) for one in maps for head in range(one.sizes[0]))
    blocks = {f"strongest.{number}": compress(content)}
    if pictures is not None:
        content = b"".join(one.thumbnail(head, THUMBNAIL) for one in maps for head in range(one.sizes[0]))
        blocks[f"thumbnails.{number}"] = compress(content)
    return blocks


class _Sequences:
    """The texts that layers read, each once."""

    def __init__(self, titled: Titled) -> None:
        self.titled = titled
        self.all: list[TextTokens] = []

    def number(self, texts: Sequence[TextTokens] | None, size: int) -> int | None:
        """The number of a layer's text among all; None where its tokens are unknown."""
        known = [self.titled.tokens, None if texts is None else texts[self.titled.text]]
        one = next((one for one in known if one is not None and len(one) == size), None)
        if one is None:
            return None
        if one not in self.all:
            self.all.append(one)
        return self.all.index(one)


def _layer(seen: Seen, layer: int, text: int) -> _Layer | LongLayer:
    """All weights of a layer, or of a long text as much as a page can hold."""
    long = max(seen.sizes()[layer][0][2:]) > LONGEST_EXACT
    return LongLayer.of(seen, layer, text) if long else _Layer.of(seen, layer, text)


@dataclass(frozen=True)
class _Layer:
    """The exact weights of a layer for one text, and which cells the mask leaves visible."""

    weights: Tensor  # (H, T, S)
    visible: Tensor  # (H, T, S) bool
    kv_heads: int

    @staticmethod
    def of(seen: Seen, layer: int, text: int) -> _Layer:
        view = seen[layer]
        weights = view.weights(text=text)[0].float().cpu()
        visible = view.visible(text)[0].cpu()
        return _Layer(weights, visible, view.kv_heads)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """(H, T, S)"""
        H, T, S = self.weights.shape
        return H, T, S

    def grid(self) -> None:
        """All weights are here."""
        return

    @property
    def triangle(self) -> bool:
        """Does the mask hide everything after the query?"""
        T, S = self.visible.shape[1:]
        return T == S and not bool(self.visible.triu(1).any())

    def thumbnail(self, head: int, most: int) -> bytes:
        """The head as a small picture."""
        return thumbnail(self.weights[head], self.visible[head], most).tobytes()

    def strongest(self, head: int) -> bytes:
        """The largest weight of each query and its key."""
        return strongest_keys(self.weights[head], self.visible[head])


def _encoded(maps: Sequence[_Layer | LongLayer], number: int, budget: int) -> tuple[list[Encoding], dict[str, bytes]]:
    """The grids of long layers; of the others linear16 where it fits the budget, else the finest root7 that does."""
    long = {
        f"long.{number}.{layer}.{head}": partial(one.block, head)
        for layer, one in enumerate(maps)
        if isinstance(one, LongLayer)
        for head in range(one.sizes[0])
    }
    encodings, blocks = [], {}
    for encodings in _from_finest(maps):
        makers = _weights(maps, encodings, number)
        few = dict(list(makers.items())[::_EVERY])
        if _size(_compressed(few)) * len(makers) > 2 * budget * len(few):
            continue  # far too much: not worth to make all of it
        blocks = _compressed(makers, budget)
        if _size(blocks) <= budget:
            break
    else:
        blocks = _compressed(_weights(maps, encodings, number))
    return encodings, blocks | _compressed(long)


def _from_finest(maps: Sequence[_Layer | LongLayer]) -> Iterator[list[Encoding]]:
    """How the layers can be stored, the most exact first."""
    yield [one.encoding if isinstance(one, LongLayer) else Encoding("linear16", one.triangle) for one in maps]
    outside = [0.0 if isinstance(one, LongLayer) else highest_outside(one.weights) for one in maps]
    for coarse in range(COARSEST + 1):
        yield [
            one.encoding if isinstance(one, LongLayer) else Encoding("root7", one.triangle, most * 2**coarse, coarse)
            for one, most in zip(maps, outside, strict=True)
        ]


def _weights(
    maps: Sequence[_Layer | LongLayer], encodings: Sequence[Encoding], number: int
) -> dict[str, Callable[[], bytes]]:
    """What makes the block of each head whose weights are all stored."""
    return {
        f"weights.{number}.{layer}.{head}": partial(encode, one.weights[head], one.visible[head], encoding)
        for layer, (one, encoding) in enumerate(zip(maps, encodings, strict=True))
        if isinstance(one, _Layer)
        for head in range(one.sizes[0])
    }


def _compressed(blocks: Mapping[str, Callable[[], bytes]], budget: int | None = None) -> dict[str, bytes]:
    """The blocks, made in threads, because zlib runs without the GIL; no more of them once they exceed the budget."""
    finished: dict[str, bytes] = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for key, content in zip(blocks, pool.map(lambda make: compress(make()), blocks.values()), strict=True):
            finished[key] = content
            if budget is not None and _size(finished) > budget:
                pool.shutdown(cancel_futures=True)
                break
    return finished


def _size(blocks: Mapping[str, bytes]) -> int:
    return sum(map(len, blocks.values()))


def _precision(encodings: Sequence[Encoding], long: bool) -> str:
    """How exact the weights are, in words."""
    if long:
        return "map and the 8 largest weights of each row ±0.00001"
    if all(one.kind == "linear16" for one in encodings):
        return "weights ±0.00001"
    error = max(one.error for one in encodings)
    return f"weights ±{error:.1g}, the 8 largest of each row ±0.00001"


def _head(portrait: Any, cost: float | None) -> dict[str, Any]:
    values = dict(portrait.means) | ({} if cost is None else {"effect": cost})
    means = {
        name: None if math.isnan(value) or math.isinf(value) else round(value, 9) for name, value in values.items()
    }
    role = portrait.role
    return {"role": role.name, "clear": role.clear, "evidence": role.evidence, "means": means}


def _sequence(tokens: TextTokens) -> dict[str, Any]:
    shown = {str(i): name for i, name in enumerate(tokens.names) if tokens.padding[i] or i in tokens.parts}
    return {
        "pieces": [_encodable(piece) for piece in tokens.pieces],
        "names": shown,
        "bytes": {str(i): text for i, text in tokens.descriptions.items()},
        "padding": [i for i, padding in enumerate(tokens.padding) if padding],
        "words": tokens.words,
    }


def _encodable(text: str) -> str:
    r"""A text that UTF-8 can hold: half of a surrogate pair is written \udc8c."""
    return text.encode(errors="backslashreplace").decode()

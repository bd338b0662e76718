"""What a page holds: one JSON document that names everything, and blocks of bytes with the weights.

js/data/page-data.js documents the same structure from the reader's side.
"""

from __future__ import annotations

import math
import os
from collections import UserDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from typing import Any

from regard.heads.change.effects import Effects
from regard.heads.measure.registry import AVERAGED, BY_NAME, STATISTICS
from regard.heads.report.report import Seen
from regard.heads.report.roles import ROLES
from regard.show.page.broken import rows_without_numbers
from regard.show.page.encode import Encoding, compress, highest_outside
from regard.show.page.layers import ExactHeads, PageLayer
from regard.show.page.long import LongLayer, exact_block
from regard.show.page.opening import order_of_heads
from regard.show.page.steps import LayerSizes, describe_steps
from regard.support.tokens import TextTokens
from regard.traces.trace import Trace

FORMAT = 1
FINE = 262_144  # bytes of all heads, compressed, up to which a page holds five decimals of a weight; then four
BUDGET = 16_300_000  # bytes of all heads, compressed; base64 adds a third, which makes a page of 22 MB
COARSER = 4  # steps of linear16 to four decimals
COARSEST = 6  # steps of root7 that are tried to fit the budget; two of them double the error
_EVERY = 7  # of so many heads one is encoded to estimate the size of all; a prime, so that it is another in each layer
THUMBNAIL = 64  # rows and columns of a small picture of a head; smaller maps are shown as they are
WITHOUT_STEPS = (
    "The steps of layer {layer} are not in this page. Only layers of regard name their steps; to add those of one: "
    "seen.to_html(path, steps={{layer}: trace_layer(model, {layer}, ids)}), with trace_layer of regard.traces.trace; "
    "seen.widget takes steps, too."
)
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
    without_steps: str = WITHOUT_STEPS  # what the view Steps says of a layer that has none


@dataclass
class PageData:
    """The document and the blocks of a page."""

    document: dict[str, Any]
    # gzip. The values are bytes; with Any, checking the types at run time computes none of those on demand.
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
            for one in sorted(STATISTICS, key=lambda one: one.unit != "weight")  # weights are read at once
            if one.heading is not None
        ]
        + [_EFFECT]
        * any("effect" in one["means"] for report in reports for layer in report["layers"] for one in layer["heads"]),
        "averaged": [{"name": name, "label": BY_NAME[name].heading or name} for name in AVERAGED],
        "roles": describe_roles(),
        "reports": reports,
    }


def describe_roles() -> list[dict[str, str]]:
    """Every role, with its words, colours and glyph."""
    return [
        {"name": one.name, "short": one.short, "about": one.about, "glyph": one.glyph}
        | dict(zip(("light", "dark"), one.colors, strict=True))
        for one in ROLES.values()
    ]


def page_on_demand(reports: Sequence[Titled]) -> PageData:
    """The same, with blocks that are computed when they are asked for."""
    blocks = BlocksOnDemand()
    heads: dict[int, dict[str, Any]] = {}  # of each report; its texts share them
    described = []
    for number, titled in enumerate(reports):
        seen, layers = titled.seen, _layers(titled)
        for one in layers:  # refused before anything is shown
            one.view.record.need("the page")
        if id(seen) not in heads:
            heads[id(seen)] = described_heads(seen)
        encodings, pictures = [one.encoding for one in layers], picture_size(layers, always=True)
        described.append(describe_report(titled, layers, encodings, heads[id(seen)], pictures))
        for key, content in _add_steps(titled, number, layers, described[-1]).items():
            blocks[key] = partial(bytes, content)
        for layer, one in enumerate(layers):
            for head in range(one.sizes[0]):
                blocks[f"{one.name}.{number}.{layer}.{head}"] = partial(one.block, head)
        small = _small_on_demand(layers)
        blocks[f"thumbnails.{number}"], blocks[f"strongest.{number}"] = partial(small, 0), partial(small, 1)
    return PageData(describe_page(described), blocks)


def _small_on_demand(layers: Sequence[PageLayer]) -> Callable[[int], bytes]:
    """Gives the pictures (0) or the strongest keys (1) of all heads of a report, computed once."""

    @cache
    def both() -> list[bytes]:
        return [compress(b"".join(parts)) for parts in zip(*(one.small(THUMBNAIL) for one in layers), strict=True)]

    return lambda which: both()[which]


class BlocksOnDemand(UserDict[str, Any]):
    """Blocks by key, as a page holds them; each is set as the function that computes it.

    >>> blocks = BlocksOnDemand({"weights.0.4.3": lambda: b"..."})
    >>> list(blocks), blocks["weights.0.4.3"]
    (['weights.0.4.3'], b'...')
    """

    def __getitem__(self, key: str) -> bytes:
        return bytes(self.data[key]())


def _layers(titled: Titled) -> list[PageLayer]:
    return [PageLayer(titled.seen, layer, titled.text) for layer in range(len(titled.seen))]


def _report(titled: Titled, number: int, budget: int, thumbnails: bool) -> tuple[dict[str, Any], dict[str, bytes]]:
    seen, layers = titled.seen, _layers(titled)
    computed = [one.heads() for one in layers]
    blocks = {f"strongest.{number}": compress(b"".join(one.strongest() for one in computed))}
    pictures = picture_size(layers, thumbnails)
    if pictures is not None:
        blocks[f"thumbnails.{number}"] = compress(b"".join(one.thumbnails(THUMBNAIL) for one in computed))
    encodings, weights = _encoded(computed, number, budget - _size(blocks))
    blocks |= weights
    described = describe_report(titled, layers, encodings, described_heads(seen, titled.effects), pictures)
    for layer, head in titled.exact:
        _ = seen[layer, head]  # refuses a head that does not exist
        if layers[layer].is_long:  # of a short text every weight is here
            exact, content = exact_block(seen, layer, head, titled.text)
            described["layers"][layer]["exact"][head] = exact
            blocks[f"exact.{number}.{layer}.{head}"] = compress(content)
    return described, blocks | _add_steps(titled, number, layers, described)


def _add_steps(titled: Titled, number: int, layers: Sequence[PageLayer], described: dict[str, Any]) -> dict[str, bytes]:
    """Describe the steps of layers; returns the blocks with their numbers."""
    blocks: dict[str, bytes] = {}
    if unknown := sorted(set(titled.steps) - set(range(len(layers)))):
        raise ValueError(f"steps has layer {unknown[0]}; this report has layers 0 to {len(layers) - 1}")
    for layer, trace in titled.steps.items():
        H, T, S = layers[layer].sizes
        sizes, key = LayerSizes(H, layers[layer].view.kv_heads, T, S), f"steps.{number}.{layer}"
        described["layers"][layer]["steps"], of_steps = describe_steps(trace, sizes, titled.text, key)
        blocks |= of_steps
    return blocks


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
    return {"heads": heads, "order": [list(place) for place in order_of_heads(seen, portraits=portraits)]}


def describe_report(
    titled: Titled,
    layers: Sequence[PageLayer],
    encodings: Sequence[Encoding],
    heads: Mapping[str, Any],
    pictures: dict[str, int] | None,
) -> dict[str, Any]:
    """A report as the document of a page has it; heads as described_heads gives them, pictures as picture_size does."""
    sequences: list[TextTokens] = []  # that layers read, each once

    def number(texts: Sequence[TextTokens] | None, size: int) -> int | None:
        """The number of a layer's text among all; None where its tokens are unknown."""
        known = [titled.tokens, None if texts is None else texts[titled.text]]
        one = next((one for one in known if one is not None and len(one) == size), None)
        if one is not None and one not in sequences:
            sequences.append(one)
        return None if one is None else sequences.index(one)

    described = []
    for layer, (name, one) in enumerate(zip(titled.seen.layers, layers, strict=True)):
        view, (_, T, S) = one.view, one.sizes
        described.append(
            {
                "name": name,
                "T": T,
                "S": S,
                "queries": number(view.query_tokens, T),
                "keys": number(view.key_tokens, S),
                "across": view.record.across,
                "kv_heads": view.kv_heads,
                "most": {name: BY_NAME[name].most(S) for name in AVERAGED},  # as a comparison scales the means
                "encoding": asdict(encodings[layer]),
                "grid": one.grid,
                "exact": {},
                "heads": heads["heads"][layer],
                "steps": None,
                "without_steps": titled.without_steps.replace("{layer}", str(layer)),
                **({"marks": list(view.marks)} if view.marks else {}),
                **({"broken": broken} if (broken := rows_without_numbers(view, titled.text)) else {}),
            }
        )
    return {
        "title": _encodable(titled.title),
        "precision": _precision(encodings, long=any(one.is_long for one in layers)),
        "sequences": [describe_sequence(one) for one in sequences],
        "layers": described,
        "order": heads["order"],
        "thumbnails": pictures,
    }


def picture_size(layers: Sequence[PageLayer], always: bool) -> dict[str, int] | None:
    """The size of small pictures of all heads; None where the maps are small enough to be drawn instead."""
    rows, cols = (max(one.sizes[axis] for one in layers) for axis in (1, 2))
    small = max(rows, cols) <= THUMBNAIL and not always
    return None if small else {"rows": min(THUMBNAIL, rows), "cols": min(THUMBNAIL, cols)}


def _encoded(
    heads: Sequence[ExactHeads | LongLayer], number: int, budget: int
) -> tuple[list[Encoding], dict[str, bytes]]:
    """The grids of long layers; of the others linear16 where it fits the budget, else the finest root7 that does."""
    encodings, blocks = list[Encoding](), dict[str, bytes]()
    for most, encodings in _from_finest(heads, budget):
        makers = _makers(heads, encodings, f"weights.{number}", ExactHeads)
        few = dict(list(makers.items())[::_EVERY])
        if _size(_compressed(few)) * len(makers) > 2 * most * len(few):
            continue  # far too much: not worth to make all of it
        blocks = _compressed(makers, most)
        if _size(blocks) <= most:
            break
    else:
        blocks = _compressed(_makers(heads, encodings, f"weights.{number}", ExactHeads))
    return encodings, blocks | _compressed(_makers(heads, encodings, f"long.{number}", LongLayer))


def _from_finest(heads: Sequence[ExactHeads | LongLayer], budget: int) -> Iterator[tuple[int, list[Encoding]]]:
    """How the layers can be stored, the most exact first, and how many bytes that may take; long ones in one way."""
    finest = [one.encoding for one in heads]
    yield min(FINE, budget), finest
    fewer = [
        one if isinstance(layer, LongLayer) else replace(one, coarse=COARSER)
        for one, layer in zip(finest, heads, strict=True)
    ]
    yield budget, fewer
    outside = [None if isinstance(one, LongLayer) else highest_outside(one.weights) for one in heads]
    for coarse in range(COARSEST + 1):
        yield (
            budget,
            [
                one if most is None else Encoding("root7", one.triangle, most * 2**coarse, coarse)
                for one, most in zip(finest, outside, strict=True)
            ],
        )


def _makers(
    heads: Sequence[ExactHeads | LongLayer], encodings: Sequence[Encoding], name: str, kind: type
) -> dict[str, Callable[[], bytes]]:
    """What makes the block of each head, in layers of this kind."""
    return {
        f"{name}.{layer}.{head}": partial(_block, one, head, encoding)
        for layer, (one, encoding) in enumerate(zip(heads, encodings, strict=True))
        if isinstance(one, kind)
        for head in range(len(one.visible))
    }


def _block(layer: ExactHeads | LongLayer, head: int, encoding: Encoding) -> bytes:
    return compress(layer.block(head, encoding), 1 if isinstance(layer, LongLayer) else encoding.planes)


def _compressed(blocks: Mapping[str, Callable[[], bytes]], budget: int | None = None) -> dict[str, bytes]:
    """The blocks, made in threads, because zlib runs without the GIL; no more of them once they exceed the budget."""
    finished: dict[str, bytes] = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for key, content in zip(blocks, pool.map(lambda make: make(), blocks.values()), strict=True):
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
        return "weights ±0.0001" if any(one.coarse for one in encodings) else "weights ±0.00001"
    error = max(one.error for one in encodings)
    return f"weights ±{error:.1g}, the 8 largest of each row ±0.00001"


def _head(portrait: Any, cost: float | None) -> dict[str, Any]:
    values = dict(portrait.means) | ({} if cost is None else {"effect": cost})
    means = {
        name: None if math.isnan(value) or math.isinf(value) else round(value, 9) for name, value in values.items()
    }
    role = portrait.role
    return {"role": role.name, "clear": role.clear, "evidence": role.evidence, "means": means}


def describe_sequence(tokens: TextTokens) -> dict[str, Any]:
    """The tokens of a text as the document of a page has them."""
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

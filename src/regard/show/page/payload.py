"""What a page holds: one JSON document that names everything, and blocks of bytes with the weights.

js/data.js documents the same structure from the reader's side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from regard.heads.effects import Effects
from regard.heads.registry import AVERAGED, BY_NAME, STATISTICS
from regard.heads.report import Seen
from regard.heads.roles import NAMES
from regard.show.page.encode import Encoding, compress, encode, highest_outside, strongest, thumbnail
from regard.show.page.long import LONGEST_EXACT, LongLayer, exact_block
from regard.show.page.steps import LayerSizes, describe_steps
from regard.tokens import TextTokens
from regard.traces.trace import Trace

FORMAT = 1
BUDGET = 16 * 2**20  # bytes of all weights, compressed; base64 adds a third
THUMBNAIL = 64  # rows and columns of a small picture of a head; smaller maps are shown as they are


_EFFECT = {
    "name": "effect",
    "label": "effect",
    "unit": "nats",
    "about": "By how much the loss per token grows when the head is cut; of chosen tokens, the drop of their log-probability.",
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
    blocks: dict[str, bytes] = field(default_factory=dict)  # gzip


def page_data(reports: Sequence[Titled], budget: int = BUDGET) -> PageData:
    """Everything that a page shows of these reports, in the most exact form that fits the budget."""
    document: dict[str, Any] = {
        "format": FORMAT,
        "statistics": [
            {"name": one.name, "label": one.heading, "unit": one.unit, "about": one.about}
            for one in STATISTICS
            if one.heading is not None
        ]
        + [_EFFECT] * any(one.effects is not None for one in reports),
        "averaged": [{"name": name, "label": BY_NAME[name].heading or name} for name in AVERAGED],
        "roles": [{"name": name, "about": ""} for name in NAMES],
        "reports": [],
    }
    page = PageData(document)
    for number, titled in enumerate(reports):
        described, blocks = _report(titled, number, budget // len(reports))
        document["reports"].append(described)
        page.blocks.update(blocks)
    return page


def _report(titled: Titled, number: int, budget: int) -> tuple[dict[str, Any], dict[str, bytes]]:
    seen = titled.seen
    maps = [_layer(seen, layer, titled.text) for layer in range(len(seen))]
    encodings, blocks = _encoded(maps, number, budget)
    if unknown := sorted(set(titled.steps) - set(range(len(seen)))):
        raise ValueError(f"steps has layer {unknown[0]}; this report has layers 0 to {len(seen) - 1}")
    portraits, texts = seen.portraits(), _Sequences(titled)
    exact: dict[int, dict[int, Any]] = {}
    for layer, head in titled.exact:
        _ = seen[layer, head]  # refuses a head that does not exist
        if isinstance(maps[layer], LongLayer):  # of a short text every weight is here
            exact.setdefault(layer, {})[head], content = exact_block(seen, layer, head, titled.text)
            blocks[f"exact.{number}.{layer}.{head}"] = compress(content)
    costs = {} if titled.effects is None else {key: one.cost for key, one in titled.effects.by_head().items()}
    if unmeasured := sorted(set(costs) - set(portraits)):
        layer, head = unmeasured[0]
        raise ValueError(f"effects has head {layer}.{head}, which this report does not have; measure the same model")
    layers = []
    for layer, (name, one) in enumerate(zip(seen.layers, maps, strict=True)):
        H, T, S = one.sizes
        heads = [_head(portraits[layer, head], costs.get((layer, head))) for head in range(H)]
        layers.append(
            {
                "name": name,
                "T": T,
                "S": S,
                "queries": texts.number(seen[layer].query_tokens, T),
                "keys": texts.number(seen[layer].key_tokens, S),
                "kv_heads": one.kv_heads,
                "most": {name: BY_NAME[name].most(S) for name in AVERAGED},  # as a comparison scales the means
                "encoding": encodings[layer].as_json(),
                "grid": one.grid() if isinstance(one, LongLayer) else None,
                "exact": exact.get(layer, {}),
                "heads": heads,
                "steps": None,
                "without_steps": f"The steps of layer {layer} are not in this file. To add them: --steps {layer}",
            }
        )
        if layer in titled.steps:
            sizes, key = LayerSizes(H, one.kv_heads, T, S), f"steps.{number}.{layer}"
            layers[-1]["steps"], of_steps = describe_steps(titled.steps[layer], sizes, titled.text, key)
            blocks |= of_steps
    pictures = None
    if any(max(one.sizes[1:]) > THUMBNAIL for one in maps):
        rows = min(THUMBNAIL, max(one.sizes[1] for one in maps))
        cols = min(THUMBNAIL, max(one.sizes[2] for one in maps))
        pictures = {"rows": rows, "cols": cols}
        content = b"".join(one.thumbnail(head, THUMBNAIL) for one in maps for head in range(one.sizes[0]))
        blocks[f"thumbnails.{number}"] = compress(content)
    content = b"".join(one.strongest(head) for one in maps for head in range(one.sizes[0]))
    blocks[f"strongest.{number}"] = compress(content)
    return {
        "title": titled.title,
        "precision": _precision(encodings, long=any(isinstance(one, LongLayer) for one in maps)),
        "sequences": [_sequence(one) for one in texts.all],
        "layers": layers,
        "order": [list(place) for place in seen.order()],
        "thumbnails": pictures,
    }, blocks


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
        weights = view.weights()[text].float().cpu()
        visible = view.visible()[text].cpu()
        return _Layer(weights, visible, view.kv_heads)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """(H, T, S)"""
        H, T, S = self.weights.shape
        return H, T, S

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
        return strongest(self.weights[head], self.visible[head])


def _encoded(maps: Sequence[_Layer | LongLayer], number: int, budget: int) -> tuple[list[Encoding], dict[str, bytes]]:
    """The grids of long layers; of the others linear16 where all of it fits the budget, else root7."""
    encodings = [one.encoding if isinstance(one, LongLayer) else Encoding("linear16", one.triangle) for one in maps]
    long = {
        f"long.{number}.{layer}.{head}": compress(one.block(head))
        for layer, one in enumerate(maps)
        if isinstance(one, LongLayer)
        for head in range(one.sizes[0])
    }
    blocks = _blocks(maps, encodings, number)
    if sum(map(len, blocks.values())) > budget:
        encodings = [
            old if isinstance(one, LongLayer) else Encoding("root7", one.triangle, highest_outside(one.weights))
            for one, old in zip(maps, encodings, strict=True)
        ]
        blocks = _blocks(maps, encodings, number)
    return encodings, blocks | long


def _blocks(maps: Sequence[_Layer | LongLayer], encodings: Sequence[Encoding], number: int) -> dict[str, bytes]:
    return {
        f"weights.{number}.{layer}.{head}": compress(encode(one.weights[head], one.visible[head], encoding))
        for layer, (one, encoding) in enumerate(zip(maps, encodings, strict=True))
        if isinstance(one, _Layer)
        for head in range(one.sizes[0])
    }


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
    return {"pieces": list(tokens.pieces), "names": shown, "words": tokens.words}

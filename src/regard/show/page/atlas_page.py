"""An atlas as a page: all heads at once in its document, and what is shown of one head in a block for each layer.

The document has the role, the jobs and the means of every head; a block has the distributions and examples of the heads
of one layer, and one has the words of all examples, by which heads are found. js/atlas/ reads them.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from regard.heads.atlas.examples import BESIDE, ExampleRow
from regard.heads.atlas.result import Atlas, AtlasHead
from regard.heads.atlas.sketch import BINS, LEAST, is_weight, middles
from regard.heads.measure.registry import AVERAGED, BY_NAME
from regard.heads.report.roles import ROLES
from regard.show.page.encode import compress
from regard.show.page.html import atlas_html
from regard.show.page.payload import describe_roles
from regard.support.drawing import as_page
from regard.support.tokens import printable_token

JOINED = 4  # bins of the sketch that are one bar
_MARKED = 0.1  # weight from which a key is marked, and its word finds the head
_AROUND = (8, 2)  # tokens before and after the row's own that are shown
_DECILES = tuple(range(1, 10))
_GROUPS = ("strongest", *range(9, -1, -1), "uniform")
# Numbers of a head beside the means of statistics: name, label, unit, what it is.
_BESIDE = (
    ("stability", "stability", "weight", "The share of texts in which the head has its most frequent role."),
    ("probe", "probe", "weight", "The induction score on repeated random tokens; see regard.probe."),
    ("effect", "effect", "nats", "By how much the loss per token grows without the head, in a sample of the corpus."),
)


def atlas_page(atlas: Atlas, title: str = "") -> str:
    """The page as one HTML document."""
    if not atlas.tokens:
        raise ValueError("the atlas has read nothing yet, so there is nothing to show; read a corpus first")
    name = title or atlas.model or "model"
    blocks = {f"layer.{layer}": packed_json(describe_heads(heads)) for layer, heads in enumerate(atlas)}
    blocks["words"] = packed_json(describe_words(atlas))
    return atlas_html(f"{name} · regard", describe_atlas(atlas, name), blocks)


def describe_atlas(atlas: Atlas, name: str) -> dict[str, Any]:
    """The document: all heads, with the role, the jobs and the means of each."""
    layers: list[dict[str, Any]] = [
        {"name": layer.name, "marks": list(layer.marks), "heads": [_summary(one) for one in heads]}
        for layer, heads in zip(atlas.layers, atlas, strict=True)
    ]
    known = {name for layer in layers for one in layer["heads"] for name in one["means"]}
    return {
        "format": "regard.atlas",
        "model": name,
        "texts": atlas.texts,
        "tokens": atlas.tokens,
        "statistics": [
            {"name": one, "label": BY_NAME[one].heading or one, "unit": BY_NAME[one].unit, "about": BY_NAME[one].about}
            for one in sorted(AVERAGED, key=lambda one: BY_NAME[one].unit != "weight")
            if one in known
        ],
        "beside": [
            dict(zip(("name", "label", "unit", "about"), one, strict=True)) | {"measured": one[0] in known}
            for one in _BESIDE
        ],
        "roles": [one | {"clear": ROLES[one["name"]].clear} for one in describe_roles()],
        "layers": layers,
        "order": [[one.layer, one.head] for one in atlas.heads()],
    }


def describe_heads(heads: Sequence[AtlasHead]) -> dict[str, Any]:
    """The distributions and the examples of the heads of one layer. words: [text, continues a word], by number."""
    words: dict[tuple[str, int], int] = {}
    described = [
        {"shapes": {name: _shape(one, name) for name in AVERAGED if one.count(name)}, **_examples(one, words)}
        for one in heads
    ]
    return {"words": list(words), "heads": described}


def describe_words(atlas: Atlas) -> dict[str, list[int]]:
    """Of each word, in lower case, the heads with an example in which it looks, or is looked at: by their numbers."""
    found: dict[str, set[int]] = defaultdict(set)
    for number, head in enumerate(one for layer in atlas for one in layer):
        for row in _rows(head):
            for at in (row.token, *_marked(row)):
                if word := word_at(row, at):
                    found[word].add(number)
    return {word: sorted(heads) for word, heads in sorted(found.items())}


def word_at(row: ExampleRow, at: int) -> str:
    """The word, in lower case, that the token at a position is of; "" where it has no visible text."""
    pieces, start, end = row.pieces, at, at
    if at not in pieces:
        return ""
    while pieces[start].continues and start - 1 in pieces:
        start -= 1
    while end + 1 in pieces and pieces[end + 1].continues:
        end += 1
    return "".join(pieces[one].text for one in range(start, end + 1)).strip().lower()


def _summary(head: AtlasHead) -> dict[str, Any]:
    layer = head.atlas.layers[head.layer]
    means = {name: value for name, value in head.summary.items() if value == value}
    means |= {"stability": head.stability} if head.text_jobs else {}
    means |= {"probe": head.probe["induction"]} if layer.probed is not None else {}
    loss, noise = head.effect if layer.costs is not None else (None, None)
    means |= {"effect": loss} if loss is not None and loss == loss else {}
    return {
        "role": head.role.name,
        "evidence": head.role.evidence,
        "clear": head.role.clear,
        "means": _short(means),
        "jobs": _short(head.jobs),
        "texts": _short(head.text_jobs),
        "noise": None if noise is None or noise != noise else round(noise, 4),
        "probe": _short(head.probe) if layer.probed is not None else {},
    }


def _shape(head: AtlasHead, name: str) -> dict[str, Any]:
    """The distribution of a statistic: shares of bins from the first to the last that has any, deciles, and means."""
    layer = head.atlas.layers[head.layer]
    counts = layer.sums.bins[head.head, AVERAGED.index(name)].reshape(BINS // JOINED, JOINED).sum(1)
    shares = (counts.double() / max(1, int(counts.sum()))).tolist()
    used = [place for place, share in enumerate(shares) if share]
    first, last = used[0], used[-1]
    edges = middles(name)
    if is_weight(name):
        ends = [first / len(shares), (last + 1) / len(shares)]
    else:  # its axis is logarithmic, and the first bin begins at 0
        ends = [max(LEAST, float(edges[place])) for place in (first * JOINED, last * JOINED + JOINED - 1)]
    texts = head.across_texts(name)
    return {
        "ends": [four_digits(one) for one in ends],
        "bins": [round(share, 4) for share in shares[first : last + 1]],
        "deciles": [four_digits(head.quantile(name, share / 10)) for share in _DECILES],
        "spread": four_digits(head.spread(name)),
        "texts": None if texts[1] != texts[1] else four_digits(texts[1]),
        "position": _short(head.by_position(name)),
        "class": _short(head.by_class(name)),
    }


def _rows(head: AtlasHead) -> list[ExampleRow]:
    """Every example of a head once."""
    kept = head.atlas.layers[head.layer].samples
    groups = [key for key in sorted(kept.groups) if key[0] == head.head]
    return list({(one.text, one.token): one for key in groups for one in kept.of(*key)}.values())


def _examples(head: AtlasHead, words: dict[tuple[str, int], int]) -> dict[str, Any]:
    """Of a head, by group. An example: [strength, position, keys, weights, positions of tokens, numbers of words]."""
    rows = _rows(head)
    places = {(one.text, one.token): place for place, one in enumerate(rows)}
    groups = {str(which): [places[one.text, one.token] for one in head.examples(which)] for which in _GROUPS}
    return {"examples": [_example(one, words) for one in rows], "groups": groups}


def _example(row: ExampleRow, words: dict[tuple[str, int], int]) -> list[Any]:
    marked = _marked(row)
    shown = set(range(row.token - _AROUND[0], row.token + _AROUND[1] + 1))
    shown |= {near for key in marked for near in range(key - BESIDE, key + BESIDE + 1)}
    at = sorted(shown & row.pieces.keys())
    pairs = [(key, round(weight, 3)) for key, weight in zip(row.keys, row.weights, strict=True) if key in at]
    numbers = []
    for place in at:
        piece = row.pieces[place]
        text = f"{' ' * piece.text[:1].isspace()}{piece.part or printable_token(piece.text)}"
        numbers.append(words.setdefault((text, int(piece.continues)), len(words)))
    return [round(row.strength, 3), row.token, [key for key, _ in pairs], [one for _, one in pairs], at, numbers]


def _marked(row: ExampleRow) -> list[int]:
    return [key for key, weight in zip(row.keys, row.weights, strict=True) if weight >= _MARKED]


def _short(values: Mapping[str, float]) -> dict[str, float]:
    return {name: four_digits(value) for name, value in values.items()}


def four_digits(value: float) -> float:
    """Four digits."""
    return float(f"{value:.4g}")


def packed_json(content: object) -> bytes:
    """A block of a page."""
    return compress(json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode())


@as_page.register
def _atlas_as_page(atlas: Atlas, title: str = "") -> str:
    return atlas_page(atlas, title)

"""Atlases as files: one safetensors file, its header a JSON text that says what each tensor is.

Equal atlases make equal files. A file is checked before it is used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import safetensors
import torch
from torch import Tensor

from regard.heads.atlas.cells import CELLS
from regard.heads.atlas.examples import EXCERPT, GROUPS, KEYS, ExampleRow, ExcerptToken, Samples
from regard.heads.atlas.sketch import BINS
from regard.heads.atlas.sums import LayerAtlas, Sums
from regard.heads.measure.registry import AVERAGED
from regard.heads.report import file_checks as checks
from regard.heads.report.file_checks import Unfit, require, whole_number
from regard.heads.report.roles import ROLES
from regard.support.files import write_safetensors
from regard.support.printable import readable
from regard.support.tokens import is_part
from regard.support.untrusted_json import MOST, parse_json

FORMAT, VERSION = "regard.atlas", 1
PACKAGED = Path(__file__).with_name("tiny.safetensors")  # of the model in the package, over the book in the package
_LONGEST = 4096  # characters of a token
_MOST_LAYERS = 4096
_LARGEST = 1 << 53  # of a count
# Numbers of a head, and the largest that can be.
_BESIDE = {"probed": (3, 1.1), "probe_noise": (3, 1.1), "costs": (2, 1e9)}
# The table of examples, a row each: its columns, their widths and their types.
_COLUMNS = {
    **dict.fromkeys(("layer", "head", "group", "key", "text", "token"), (None, torch.int64)),
    "strength": (None, torch.float32),
    "keys": (KEYS, torch.int32),
    "weights": (KEYS, torch.float32),
    "places": (EXCERPT, torch.int32),
    "pieces": (EXCERPT, torch.int32),
}


def write_layers(path: str | Path, layers: Sequence[LayerAtlas], about: Mapping[str, Any]) -> None:
    """Write the layers of an atlas to one file, completely or not at all; about: plain values of the whole atlas."""
    tensors = {
        f"{number}.{name}": tensor for number, layer in enumerate(layers) for name, tensor in vars(layer.sums).items()
    }
    beside = {f"{n}.{name}": getattr(layer, name) for n, layer in enumerate(layers) for name in _BESIDE}
    beside = {name: tensor for name, tensor in beside.items() if tensor is not None}
    table, words = _table(layers)
    header = {
        "version": VERSION,
        "statistics": AVERAGED,
        "roles": list(ROLES),
        "layers": [{"name": one.name, "heads": one.heads, "marks": one.marks} for one in layers],
        "words": words,
        **about,
    }
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = {name: narrowed(tensor) for name, tensor in (tensors | beside | table).items()}
    metadata = {FORMAT: json.dumps(header)}  # one text: safetensors writes several in any order
    write_safetensors(path, tensors, metadata)


def narrowed(tensor: Tensor) -> Tensor:
    """Whole numbers in the narrowest type that holds them all: files are half as large.

    >>> narrowed(torch.tensor([0, 300])).dtype, narrowed(torch.tensor([0, 1 << 40])).dtype
    (torch.int16, torch.int64)
    """
    if tensor.is_floating_point() or not tensor.numel():
        return tensor
    least, most = int(tensor.min()), int(tensor.max())
    types = (torch.int16, torch.int32, torch.int64)
    return tensor.to(next(one for one in types if torch.iinfo(one).min <= least and most <= torch.iinfo(one).max))


def read_layers(path: str | Path) -> tuple[list[LayerAtlas], dict[str, Any]]:
    """The layers and the plain values of an atlas that write_layers() wrote; everything is checked first."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{path} is not a file; atlas.save({str(path)!r}) writes one")
    with checks.file_named(path), safetensors.safe_open(str(path), framework="pt") as file:
        raw = (file.metadata() or {}).get(FORMAT)
        if raw is None:
            raise Unfit("this is a safetensors file but no atlas of regard; atlas.save(path) writes those")
        with checks.damage_refused("the header does not describe an atlas"):
            header = parse_json(raw, MOST + path.stat().st_size // 4)
            version = readable(str(header["version"]))
            require(
                version == str(VERSION),
                f"the atlas has version {version} and this regard reads {VERSION}; update regard",
            )
            return _read(file, header)


def _read(file: Any, header: Mapping[str, Any]) -> tuple[list[LayerAtlas], dict[str, Any]]:
    same = tuple(header["statistics"]) == AVERAGED and header["roles"] == list(ROLES)
    require(same, "it has other statistics or roles than this regard; measure it again")
    require(len(header["layers"]) <= _MOST_LAYERS, f"it has {len(header['layers']):,} layers")
    require(all(map(checks.short_text, (header["model"], header["weights"]))), "the model's name is no short text")
    require(isinstance(header["extra"], dict), "extra is no object")
    layers = []
    for number, one in enumerate(header["layers"]):
        heads, marks = whole_number(one["heads"], "heads", checks.MOST_HEADS), tuple(one["marks"])
        require(
            heads > 0 and all(map(checks.short_text, (one["name"], *marks))), f"layer {number} has no heads or name"
        )
        sums = Sums(**{each.name: _sum(file, number, each.name, heads) for each in fields(Sums)})
        require(sums.steps.shape[1] == 2 * sums.reach + 1, f"layer {number}: steps and places do not fit")
        beside = {name: _beside(file, number, name, heads) for name in _BESIDE}
        layers.append(LayerAtlas(one["name"], sums, Samples(heads), marks, **beside))
    _read_examples(file, layers, [_piece(*one) for one in header["words"]])
    about = {name: whole_number(header[name], name, _LARGEST) for name in ("texts", "tokens")}
    return layers, about | {name: header[name] for name in ("model", "weights", "extra")}


def _sum(file: Any, layer: int, name: str, heads: int) -> Tensor:
    """One tensor of the sums of a layer."""
    K, R = len(AVERAGED), len(ROLES)
    sizes: dict[str, tuple[int, ...]] = {"rows": (K, CELLS, 3), "even": (K, 2), "texts": (K, 3), "bins": (K, BINS)}
    sizes |= {"jobs": (R,), "text_jobs": (R,)}
    tensor = _tensor(file, f"{layer}.{name}", (heads, *sizes[name]) if name in sizes else (heads, None))
    kind = torch.float64 if name in ("rows", "even", "texts") else torch.int64
    require(tensor.dtype is kind, f"layer {layer}: {name} is {tensor.dtype} and should be {kind}")
    require(bool(tensor.isfinite().all()), f"layer {layer}: {name} has NaN or infinity")
    most = 1 << 62 if name in ("steps", "places") else _LARGEST
    least = -1.0 if kind is torch.float64 else 0  # a mean may be rounded below 0
    checks.check_range(f"layer {layer}: {name}", tensor, least, most, {})
    return tensor


def _beside(file: Any, layer: int, name: str, heads: int) -> Tensor | None:
    """Numbers of each head that are no sums, where there are any; NaN where one is unknown."""
    if f"{layer}.{name}" not in file.keys():  # noqa: SIM118, it is no dict
        return None
    width, most = _BESIDE[name]
    tensor = _tensor(file, f"{layer}.{name}", (heads, width))
    checks.check_dtype(f"layer {layer}: {name}", tensor, "numbers")
    checks.check_range(f"layer {layer}: {name}", tensor, -most, most, {})
    return tensor.double()


def _tensor(file: Any, name: str, shape: Sequence[int | None]) -> Tensor:
    """A tensor of this shape; None is any size."""
    require(name in file.keys(), f"{name} is missing")  # noqa: SIM118
    found = tuple(file.get_slice(name).get_shape())
    fits = len(found) == len(shape) and all(b in (None, a) for a, b in zip(found, shape, strict=True))
    wanted = ", ".join("any" if one is None else str(one) for one in shape)
    require(fits, f"{name} is {found} and should be ({wanted})")
    tensor: Tensor = file.get_tensor(name)
    return tensor.long() if tensor.dtype in (torch.int16, torch.int32) else tensor


def _piece(text: Any, continues: Any, part: Any) -> ExcerptToken:
    is_text = isinstance(text, str) and len(text) <= _LONGEST and isinstance(part, str) and (not part or is_part(part))
    require(is_text and continues in (0, 1), "words are not tokens")
    return ExcerptToken(text, bool(continues), part)


def _table(layers: Sequence[LayerAtlas]) -> tuple[dict[str, Tensor], list[list[Any]]]:
    """The examples as the columns of a table, and the tokens that its pieces are numbers of, each once."""
    rows: list[tuple[int, int, int, int, ExampleRow]] = []
    for number, layer in enumerate(layers):
        for (head, group), kept in sorted(layer.samples.groups.items()):
            own = sorted(kept, key=lambda one: (one[0], one[1].text, one[1].token))
            rows += [(number, head, group, key, example) for key, example in own]
    words = sorted({piece for *_, example in rows for piece in example.pieces.values()})
    numbers = {piece: number for number, piece in enumerate(words)}

    def padded(values: Sequence[float], size: int, with_: float) -> list[float]:
        return [*values, *[with_] * (size - len(values))]

    columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
    for layer_number, head, group, key, one in rows:
        at = sorted(one.pieces)
        values = (
            *(layer_number, head, group, key, one.text, one.token, one.strength),
            padded(one.keys, KEYS, -1),
            padded(one.weights, KEYS, 0.0),
            padded(at, EXCERPT, -1),
            padded([numbers[one.pieces[place]] for place in at], EXCERPT, -1),
        )
        for name, value in zip(_COLUMNS, values, strict=True):
            columns[name].append(value)
    tensors = {}
    for name, (width, dtype) in _COLUMNS.items():
        size = (len(rows),) if width is None else (len(rows), width)
        tensors[f"examples.{name}"] = torch.tensor(columns[name], dtype=dtype).reshape(size)
    return tensors, [[piece.text, int(piece.continues), piece.part] for piece in words]


def _read_examples(file: Any, layers: Sequence[LayerAtlas], words: Sequence[ExcerptToken]) -> None:
    """Put the examples of a file into the samples of the layers."""
    columns: dict[str, Any] = {}
    for name, (width, dtype) in _COLUMNS.items():
        tensor = _tensor(file, f"examples.{name}", (None,) if width is None else (None, width))
        kind = dtype if dtype.is_floating_point else torch.int64
        require(tensor.dtype is kind, f"examples.{name} is {tensor.dtype} and should be {kind}")
        if dtype is torch.float32:
            require(bool(tensor.isfinite().all()), f"examples.{name} has NaN or infinity")
        columns[name] = tensor
    limits: dict[str, tuple[float, float]] = {"layer": (0, len(layers) - 1), "group": (0, GROUPS - 1)}
    limits |= {"key": (0, 1 << 63), "token": (0, 1 << 31), "strength": (0, 1.1), "weights": (0, 1.1)}
    limits |= {"keys": (-1, (1 << 31) - 1), "places": (-1, (1 << 31) - 1), "pieces": (-1, len(words) - 1)}
    for name, (least, most) in limits.items():
        checks.check_range(f"examples.{name}", columns[name], least, most, {})
    for row in zip(*(columns[name].tolist() for name in _COLUMNS), strict=True):
        layer, head, group, key, text, token, strength, keys, weights, places, pieces = row
        require(0 <= head < layers[layer].heads, f"there is no head {layer}.{head}")
        pairs = [(place, share) for place, share in zip(keys, weights, strict=True) if place >= 0]
        excerpt = {place: words[number] for place, number in zip(places, pieces, strict=True) if place >= 0 <= number}
        shown = tuple(place for place, _ in pairs), tuple(share for _, share in pairs)
        layers[layer].samples.put(head, group, key, ExampleRow(text, token, strength, *shown, excerpt))

"""What was measured of cuts, and its file: one safetensors file, everything in it checked before it is used."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.heads.report.file_checks import (
    MOST_HEADS,
    Unfit,
    check_range,
    damage_refused,
    opened,
    plain_text,
    require,
    short_text,
    text_of_plain,
    whole_number,
)
from regard.support.files import write_safetensors
from regard.support.printable import printable_errors, readable
from regard.support.tokens import TextTokens
from regard.support.untrusted_json import MOST, parse_json

FORMAT, VERSION = "regard.effects", 1
LARGEST_LOSS = 1e9  # of a token, unless it is infinite
HeadNumber = tuple[int, int]


@dataclass(frozen=True)
class Measured:
    """The loss at every token, uncut and by how much it grows with each cut. N cuts, texts of T tokens each."""

    cuts: Sequence[tuple[HeadNumber, ...]]  # the heads of each cut, (layer, head), in order
    losses: Sequence[Tensor]  # (T,) float64 for each text, NaN where a token has no prediction
    changes: Sequence[Tensor]  # (N, T) float64 for each text
    chosen: Sequence[Sequence[int]] | None  # the chosen tokens of each text
    heads: Sequence[int]  # the number of heads of each layer
    roles: Mapping[HeadNumber, str]
    texts: Sequence[TextTokens] | None  # the tokens of each text, where they are known
    to: str  # what cut heads handed over, in words


def save_measured(path: str | Path, measured: Measured) -> None:
    """Write it to one file, completely or not at all."""
    header = {
        "cuts": measured.cuts,
        "chosen": None if measured.chosen is None else [list(one) for one in measured.chosen],
        "heads": list(measured.heads),
        "roles": [[*head, role] for head, role in measured.roles.items()],
        "texts": None if measured.texts is None else [plain_text(text) for text in measured.texts],
        "to": measured.to,
        "count": len(measured.losses),
    }
    # Copies: safetensors writes no tensors that share memory.
    tensors = {f"losses.{i}": one.clone() for i, one in enumerate(measured.losses)}
    tensors |= {f"changes.{i}": one.clone() for i, one in enumerate(measured.changes)}
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_safetensors(path, tensors, {"format": FORMAT, "version": str(VERSION), "effects": json.dumps(header)})


@printable_errors()
def load_measured(path: str | Path) -> Measured:
    """Read what save_measured() wrote."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{path} is not a file; effects.save({str(path)!r}) writes one")
    with opened(path) as file:
        return _read(file, path.stat().st_size)


def _read(file: Any, size: int) -> Measured:
    metadata = file.metadata() or {}
    if metadata.get("format") != FORMAT:
        raise Unfit("this is a safetensors file but holds no effects; effects.save(path) writes those")
    if metadata.get("version") != str(VERSION):
        version = readable(metadata.get("version"))
        raise Unfit(f"the effects have version {version} and this regard reads {VERSION}; update regard")
    with damage_refused("effects"):
        return _checked(parse_json(metadata["effects"], MOST + size // 4), file)


def _checked(header: dict[str, Any], file: Any) -> Measured:
    heads = [whole_number(one, "heads", most=MOST_HEADS) for one in header["heads"]]
    cuts = [tuple(_head(one, heads) for one in cut) for cut in header["cuts"]]
    require(all(cuts), "a cut has no heads")
    count = whole_number(header["count"], "count")
    require(bool(heads) and count > 0, "there are no layers or no texts")
    losses, changes = [], []
    for i in range(count):
        losses.append(_tensor(file, f"losses.{i}", 1, None))
        changes.append(_tensor(file, f"changes.{i}", 2, (len(cuts), len(losses[-1]))))
    sizes = [len(one) for one in losses]
    chosen = header["chosen"]
    if chosen is not None:
        require(len(chosen) == count, "the chosen tokens are not those of every text")
        require(
            all(whole_number(at, "chosen") < size for one, size in zip(chosen, sizes, strict=True) for at in one),
            "no such token",
        )
    texts = None if header["texts"] is None else [text_of_plain(one) for one in header["texts"]]
    require(texts is None or [len(one) for one in texts] == sizes, "the texts do not have as many tokens as the losses")
    roles = {_head((layer, head), heads): role for layer, head, role in header["roles"]}
    require(all(map(short_text, (*roles.values(), header["to"]))), "a role, or what was handed over, is no short text")
    return Measured(cuts, losses, changes, chosen, heads, roles, texts, header["to"])


def _tensor(file: Any, name: str, axes: int, shape: tuple[int, ...] | None) -> Tensor:
    found = tuple(file.get_slice(name).get_shape()) if name in file.keys() else None  # noqa: SIM118
    require(found is not None, f"{name} is missing")
    require(len(found or ()) == axes and shape in (None, found), f"{name} is {found} and should be {shape or '(T,)'}")
    tensor: Tensor = file.get_tensor(name)
    require(tensor.dtype is torch.float64, f"{name} is {tensor.dtype} and should be float64")
    check_range(name, tensor.nan_to_num(0.0, 0.0, 0.0), -LARGEST_LOSS, LARGEST_LOSS, {})
    return tensor


def _head(head: Any, heads: Sequence[int]) -> HeadNumber:
    layer, number = (whole_number(one, "a head") for one in head)
    require(layer < len(heads) and number < heads[layer], f"there is no head {layer}.{number}")
    return layer, number

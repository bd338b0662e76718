"""Reports as files: one safetensors file, its header a JSON text that says what each tensor is.

Nothing in a file is believed before it is checked: the header first, then every shape against the sizes it states.
"""

from __future__ import annotations

import json
import math
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import safetensors
import torch
from safetensors.torch import save_file
from torch import Tensor

from regard.attention.masks import (
    CAUSAL,
    EVERYTHING,
    And,
    Causal,
    Dense,
    Documents,
    Everything,
    Mask,
    Not,
    Or,
    Padding,
    Window,
    dense,
    documents,
    padding,
    window,
)
from regard.heads.call import WatchedCall
from regard.heads.record import Record, Step
from regard.heads.report import Forward, Seen, placed
from regard.heads.visibility import seeing_queries

FORMAT, VERSION = "regard.seen", 1
_ROWS = ("B", "H", "T")
_AXES: dict[str, tuple[str, ...]] = {  # ? is any size; a letter in lower case may also be 1
    **dict.fromkeys(("lse", "entropy", "largest", "largest_key", "distance"), _ROWS),
    **dict.fromkeys(("sink", "previous", "self", "induction", "duplicate"), _ROWS),
    **dict.fromkeys(("received", "received_mean"), ("B", "H", "S")),
    **dict.fromkeys(("histogram", "top_keys", "top_weights"), ("B", "H", "T", "?")),
    "map": ("B", "H", "?", "?"),
    **dict.fromkeys(("visible", "even_distance"), ("b", "h", "T")),
    "queries": ("b", "h", "S"),
}
_PARTS: dict[str, tuple[str, ...]] = {
    "q": ("B", "H", "T", "?"),
    "k": ("B", "?", "S", "?"),
    "bias": ("b", "h", "t", "s"),
    "alibi": ("H",),
    "weights": ("B", "H", "T", "S"),
    "real": ("B", "T"),
    "tokens": ("B", "S"),
}


def save(seen: Seen, path: str | Path, keep: bool | None = None) -> None:
    """Write a report to one file, whole or not at all.

    keep=False leaves out queries, keys and masks: statistics are read back, weights are not.
    """
    kept = all(record.kept for forward in seen._forwards for record in forward.records.values())
    if keep and not kept:
        raise ValueError("queries and keys were not all kept, so they cannot be saved; watch with keep=True")
    writer = _Writer(kept if keep is None else keep)
    report = {
        "collect": sorted(seen.collect),
        "keep": seen.keep,
        "forwards": [
            {
                "number": forward.number,
                "layers": [writer.record(record) for record in forward.records.values()],
            }
            for forward in seen._forwards
        ],
    }
    _write(Path(path), writer.tensors, {"format": FORMAT, "version": str(VERSION), "report": json.dumps(report)})


def load_seen(path: str | Path, device: torch.device | str = "cpu") -> Seen:
    """Read a report that was saved with seen.save(path).

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Seen().save(f"{folder}/empty.safetensors")
    ...     load_seen(f"{folder}/empty.safetensors")
      nothing was seen yet
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{path} is not a file; seen.save({str(path)!r}) writes one")
    try:
        with safetensors.safe_open(str(path), framework="pt", device=str(device)) as file:
            return _read(file, torch.device(device))
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path} is damaged or no safetensors file ({error}). Nothing was loaded.") from None
    except _Unfit as error:
        raise ValueError(f"{path}: {error}. Nothing was loaded.") from None


class _Unfit(Exception):
    """Why a file is not believed."""


class _Writer:
    """Gathers tensors under names; what is the same, such as a bias used in every layer, is written once."""

    def __init__(self, keep: bool) -> None:
        self.keep = keep
        self.tensors: dict[str, Tensor] = {}
        self._common: list[str] = []

    def put(self, tensor: Tensor, common: bool = False) -> str:
        """The name under which the tensor is written; a common one may be there already."""
        plain = tensor.detach().cpu().contiguous()
        if common:
            for name in self._common:
                if _same(self.tensors[name], plain):
                    return name
        name = f"t{len(self.tensors)}"
        # safetensors writes no tensors that share memory.
        self.tensors[name] = plain.clone() if plain.data_ptr() == tensor.data_ptr() and plain.numel() else plain
        self._common += [name] * common
        return name

    def record(self, record: Record) -> dict[str, Any]:
        record.visible()  # counted now, so that the file need not hold masks for it
        B, H, _, _ = record.sizes
        return {
            "name": record.name,
            "B": B,
            "H": H,
            "shared": self.put(record.shared) if self.keep and record.shared is not None else None,
            "steps": [self.step(step) for step in record.steps],
        }

    def step(self, step: Step) -> dict[str, Any]:
        call = step.call
        found: dict[str, Any] = {"T": step.rows, "S": step.keys, "kept": self.keep}
        found["across"], found["extra"] = call.across, call.extra
        found["found"] = {name: self.put(value) for name, value in step.found.items()}
        if not self.keep:
            if "received_mean" in step.found and "queries" not in step.found:
                found["found"]["queries"] = self.put(seeing_queries(call))
            if call.real is not None:
                found["real"] = self.put(call.real, common=True)
            return found
        found["scale"] = call.scale
        found["mask"] = self.mask(call.mask, step)
        found["shares_keys"] = step.shares_keys
        for name in _PARTS:
            value = getattr(call, name)
            if value is not None and not (name == "k" and step.shares_keys):
                found[name] = self.put(value, common=name not in ("q", "k", "weights"))
        return found

    def mask(self, mask: Mask, step: Step) -> dict[str, Any]:
        """A mask as its rule; one that the file does not know is written out."""
        match mask:
            case Everything() | Causal():
                return {"kind": mask.kind}
            case Window():
                return {"kind": "window", "size": mask.size}
            case Padding():
                return {"kind": "padding", "keep": self.put(mask.keep, common=True)}
            case Documents():
                return {"kind": "documents", "ids": self.put(mask.ids, common=True)}
            case And() | Or():
                both = [self.mask(mask.left, step), self.mask(mask.right, step)]
                return {"kind": "and" if isinstance(mask, And) else "or", "of": both}
            case Not():
                return {"kind": "not", "of": [self.mask(mask.rule, step)]}
        seen = mask.seen if isinstance(mask, Dense) else mask.dense(step.rows, step.keys, step.call.device)
        return {"kind": "dense", "shape": list(seen.shape), "bits": self.put(_packed(seen), common=True)}


def _write(path: Path, tensors: dict[str, Tensor], header: dict[str, str]) -> None:
    """The file is whole under its name or not there at all: written beside it, flushed, and renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        save_file(tensors, str(beside), metadata=header)
        with open(beside, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    if hasattr(os, "O_DIRECTORY"):  # the new name, too, must survive a crash
        folder = os.open(path.parent, os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _read(file: Any, device: torch.device) -> Seen:
    header = file.metadata() or {}
    if header.get("format") != FORMAT:
        raise _Unfit("this is a safetensors file but no report of regard; seen.save(path) writes those")
    if header.get("version") != str(VERSION):
        raise _Unfit(f"the report has version {header.get('version')} and this regard reads {VERSION}; update regard")
    try:
        report = json.loads(header["report"])
        reader = _Reader(file, device)
        collect = frozenset(map(str, report["collect"]))
        keep = report["keep"]
        forwards = [
            Forward(_count(forward["number"], "number"), placed([reader.record(layer) for layer in forward["layers"]]))
            for forward in report["forwards"]
        ]
        _fits(keep is None or isinstance(keep, bool), f"keep is {keep!r}")
        return Seen._of(forwards, collect, keep)
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise _Unfit(f"the header does not describe a report ({type(error).__name__}: {error})") from None


class _Reader:
    """Tensors of a file, each looked at from outside before it is read."""

    def __init__(self, file: Any, device: torch.device) -> None:
        self._file, self._device = file, device
        self._known = set(file.keys())
        self._read: dict[str, Tensor] = {}

    def get(self, name: Any, axes: tuple[str, ...] | None, sizes: dict[str, int], what: str) -> Tensor:
        """The tensor, if its shape is what the sizes say."""
        _fits(isinstance(name, str) and name in self._known, f"{what} is missing")
        shape = tuple(self._file.get_slice(name).get_shape())
        if axes is not None:
            fits = len(shape) == len(axes) and all(
                axis == "?" or size == sizes[axis.upper()] or (axis.islower() and size == 1)
                for axis, size in zip(axes, shape, strict=True)
            )
            wanted = ", ".join("any" if a == "?" else str(sizes[a.upper()]) for a in axes)
            _fits(fits, f"{what} is {shape} and should be ({wanted})")
        if name not in self._read:
            self._read[name] = self._file.get_tensor(name)
        return self._read[name]

    def record(self, layer: dict[str, Any]) -> Record:
        sizes = {"B": _count(layer["B"], "B"), "H": _count(layer["H"], "H")}
        _fits(isinstance(layer["name"], str) and bool(layer["steps"]), "a layer has no name or no steps")
        shared = None if layer["shared"] is None else self.get(layer["shared"], ("B", "?", "?", "?"), sizes, "keys")
        return Record(layer["name"], [self.step(layer["name"], one, sizes, shared) for one in layer["steps"]], shared)

    def step(self, name: str, step: dict[str, Any], sizes: dict[str, int], shared: Tensor | None) -> Step:
        sizes = sizes | {"T": _count(step["T"], "T"), "S": _count(step["S"], "S")}
        B, H, T, S = (sizes[axis] for axis in "BHTS")
        found = {}
        for statistic, where in step["found"].items():
            _fits(statistic in _AXES, f"{statistic} is no statistic of version {VERSION}")
            found[statistic] = self.get(where, _AXES[statistic], sizes, f"{name}: {statistic}")
            whole = statistic in ("largest_key", "top_keys", "queries")
            _fits(found[statistic].is_floating_point() != whole, f"{name}: {statistic} is {found[statistic].dtype}")
        parts = {part: self.get(step[part], _PARTS[part], sizes, f"{name}: {part}") for part in _PARTS if part in step}
        _fits("real" not in parts or parts["real"].dtype is torch.bool, f"{name}: real must be true or false")
        stands: Any = {"across": step["across"] is True, "extra": _count(step.get("extra", 0), "extra")}
        _fits(stands["extra"] <= max(S - T, 0), f"{name}: {stands['extra']} of {S} keys are said to be extra")
        if not step["kept"]:
            q, k = (torch.empty(*shape, 0, device=self._device) for shape in ((B, H, T), (B, 1, S)))
            # Its masks stayed behind, and so must anything that would have to be counted from them.
            counted = {"visible", "even_distance"} | ({"queries"} if "received_mean" in found else set())
            _fits(counted <= found.keys(), f"{name}: {', '.join(sorted(counted - found.keys()))} is missing")
            return Step(WatchedCall(name, q=q, k=k, real=parts.get("real"), **stands), False, found)
        shares = step["shares_keys"] is True
        if shares:
            if shared is None or shared.shape[2] < S:
                raise _Unfit(f"{name}: the keys of all steps together are missing or too few for {S}")
            parts["k"] = shared.new_empty(B, shared.shape[1], S, 0)
        if "weights" not in parts:
            _fits("q" in parts and "k" in parts, f"{name}: neither weights nor queries and keys are there")
            keys = shared if shares and shared is not None else parts["k"]
            fits = keys.shape[1] > 0 and H % keys.shape[1] == 0 and keys.shape[3] == parts["q"].shape[3]
            _fits(fits or not H, f"{name}: keys {tuple(keys.shape)} do not fit queries {tuple(parts['q'].shape)}")
        scale = float(step["scale"])
        _fits(math.isfinite(scale), f"{name}: scale is {scale}")
        mask = self.mask(step["mask"])
        mask.check(B, H, T, S)
        return Step(WatchedCall(name, scale=scale, mask=mask, **stands, **cast(Any, parts)), True, found, shares)

    def mask(self, rule: dict[str, Any]) -> Mask:
        """A mask from its rule."""
        kind = rule["kind"]
        if kind in ("and", "or"):
            left, right = (self.mask(one) for one in rule["of"])
            return left & right if kind == "and" else left | right
        makers: dict[str, Callable[[], Mask]] = {
            "everything": lambda: EVERYTHING,
            "causal": lambda: CAUSAL,
            "window": lambda: window(rule["size"]),
            "padding": lambda: padding(self.get(rule["keep"], None, {}, "padding")),
            "documents": lambda: documents(self.get(rule["ids"], None, {}, "documents")),
            "not": lambda: ~self.mask(rule["of"][0]),
            "dense": lambda: dense(self._unpacked(rule)),
        }
        _fits(kind in makers, f"no mask is called {kind!r}")
        return makers[kind]()

    def _unpacked(self, rule: dict[str, Any]) -> Tensor:
        shape = [_count(size, "a mask's size") for size in rule["shape"]]
        bits = math.prod(shape)
        packed = self.get(rule["bits"], ("S",), {"S": -(-bits // 8)}, "mask")
        _fits(packed.dtype is torch.uint8, f"mask is {packed.dtype} and should be bits")
        powers = 2 ** torch.arange(8, dtype=torch.uint8, device=packed.device)
        return (packed[:, None] & powers).bool().flatten()[:bits].reshape(shape)


def _packed(seen: Tensor) -> Tensor:
    """A bool tensor as bits, eight to a byte."""
    flat = seen.flatten()
    flat = torch.nn.functional.pad(flat.to(torch.uint8), (0, -flat.numel() % 8)).view(-1, 8)
    return (flat << torch.arange(8, dtype=torch.uint8, device=seen.device)).sum(-1, dtype=torch.uint8)


def _same(one: Tensor, other: Tensor) -> bool:
    """Are they alike to the bit?"""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return one.numel() == 0 or torch.equal(one.view(-1).view(torch.uint8), other.view(-1).view(torch.uint8))


def _count(value: Any, what: str) -> int:
    _fits(isinstance(value, int) and not isinstance(value, bool) and value >= 0, f"{what} is {value!r}, no size")
    return int(value)


def _fits(fits: bool, why: str) -> None:
    if not fits:
        raise _Unfit(why)

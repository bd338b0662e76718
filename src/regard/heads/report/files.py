"""Reports as files: one safetensors file, its header a JSON text that says what each tensor is.

A file is checked before it is used: the header first, then every shape against the sizes that the header states.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import torch
from torch import Tensor

from regard.attention.call import QK
from regard.attention.mask_algebra import MAKERS, Dense, Mask
from regard.heads.calls.basis import Basis
from regard.heads.calls.call import Attention, Origin, OwnWeights, WatchedCall
from regard.heads.calls.visibility import is_counted_by_mask, mask_written_out, queries_per_key
from regard.heads.measure.registry import STORED, check_collected
from regard.heads.report import file_checks as checks
from regard.heads.report.file_checks import Unfit, require, whole_number
from regard.heads.report.forwards import Forward, in_slots
from regard.heads.report.record import Record, RecordedCall, RecordTexts
from regard.heads.report.texts import texts_of
from regard.support.files import write_safetensors
from regard.support.printable import printable_errors, readable
from regard.support.tokens import TextTokens
from regard.support.untrusted_json import MOST, parse_json

NO_TEXTS = "the report was saved without tokens; watch again with a tokenizer and save it"
FORMAT, VERSION = "regard.seen", 1
LARGEST_WINDOW = (1 << 31) - 1
_MOST_PARTS = 64  # of a mask
# ? is any size; a letter in lower case may also be 1
_AXES: dict[str, Sequence[str]] = {tensor: one.axes for tensor, one in STORED.items()}
_AXES |= {"visible": "bhT", "even_distance": "bhT", "queries": "bhS"}
_INTEGERS = {"queries", *(tensor for one in STORED.values() for tensor in one.keys)}
_TOGETHER = (("visible", "even_distance"), *(one.stored for one in STORED.values() if len(one.stored) > 1))
_PARTS = {"q": "BHT?", "k": "B?S?", "bias": "bhts", "alibi": "H", "weights": "BHTS", "real": "BT", "tokens": "BS"}
Report = tuple[Sequence[Forward], frozenset[str], bool | None]  # what ran, the names that were collected, and keep


def save_report(path: str | Path, report: Report, keep: bool | None = None) -> None:
    """Write a report to one file, completely or not at all.

    keep=False leaves out queries, keys and masks: statistics are read back, weights are not.
    """
    forwards, collect, was_kept = report
    kept = all(record.kept for forward in forwards for record in forward.records.values())
    if keep and not kept:
        raise ValueError("queries and keys were not all kept, so they cannot be saved; watch with keep=True")
    writer = _Writer(kept if keep is None else keep)
    layers = [[writer.record(record) for record in forward.records.values()] for forward in forwards]
    plain = [{"number": one.number, "layers": own} for one, own in zip(forwards, layers, strict=True)]
    texts = [checks.plain_text(text) for text in writer.texts]
    header = {"collect": sorted(collect), "keep": was_kept, "forwards": plain, "texts": texts}
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_safetensors(path, writer.tensors, {"format": FORMAT, "version": str(VERSION), "report": json.dumps(header)})


@printable_errors()
def load_report(path: str | Path, device: torch.device | str = "cpu") -> Report:
    """Read a report from a file that save_report() wrote; everything in it is checked first."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{path} is not a file; seen.save({str(path)!r}) writes one")
    with checks.file_named(path), safetensors.safe_open(str(path), framework="pt", device=str(device)) as file:
        return _read(file, path.stat().st_size, torch.device(device))


class _Writer:
    """Collects tensors under names; equal ones, such as a bias used in every layer, are written once."""

    def __init__(self, keep: bool) -> None:
        self.keep = keep
        self.tensors: dict[str, Tensor] = {}
        self.texts: dict[TextTokens, int] = {}  # and their numbers; a text that many layers have is written once
        self._names: dict[tuple[object, ...], str] = {}  # of tensors, by their content

    def put(self, tensor: Tensor) -> str:
        """The name under which the tensor is written."""
        plain = tensor.detach().cpu().clone(memory_format=torch.contiguous_format)  # none may share memory in a file
        digest = hashlib.sha256(plain.view(-1).view(torch.uint8).numpy().data).digest()
        name = self._names.setdefault((plain.dtype, plain.shape, digest), f"t{len(self.tensors)}")
        self.tensors.setdefault(name, plain)
        return name

    def record(self, record: Record) -> dict[str, Any]:
        record.visible()  # counted now, so that the file needs no mask for it
        B, H, _, _ = record.sizes
        shared = self.put(record.shared) if self.keep and record.shared is not None else None
        steps = [self.step(step) for step in record.steps]
        entry: dict[str, Any] = {"name": record.name, "B": B, "H": H, "shared": shared, "steps": steps}
        entry["grew"] = record.grew
        texts = texts_of(record)
        for name, known in (("query_texts", texts.queries), ("key_texts", texts.keys)):
            numbers = [self.texts.setdefault(text, len(self.texts)) for text in known or ()]
            entry[name] = None if known is None else numbers
        return entry

    def step(self, step: RecordedCall) -> dict[str, Any]:
        call, origin = step.call, step.call.origin
        found = {name: self.put(value) for name, value in step.measured.items()}
        entry: dict[str, Any] = {"T": step.rows, "S": step.keys, "kept": self.keep, "found": found}
        entry |= {"across": origin.across, "extra": origin.extra, "basis": origin.basis.plain()}
        if not self.keep:
            if "received_mean" in step.measured and "queries" not in step.measured:
                found["queries"] = self.put(queries_per_key(call))
            return entry if origin.real is None else entry | {"real": self.put(origin.real)}
        entry["scale"] = call.attention.scale if isinstance(call.attention, QK) else 1.0
        entry["mask"], entry["mask_is_whole"] = self.mask(call.attention.mask, step), True
        entry["shares_keys"] = step.shares_keys
        for name in _PARTS:
            value = getattr(call.attention, name, getattr(origin, name, None))
            if value is not None and not (name == "k" and step.shares_keys):
                entry[name] = self.put(value)
        return entry

    def mask(self, mask: Mask, step: RecordedCall) -> dict[str, Any]:
        """A mask as its rule; one whose kind files do not have as a tensor."""
        kind = vars(type(mask)).get("file_kind")  # not of its parents: a subclass is another rule
        if kind is None:
            seen = mask.seen if isinstance(mask, Dense) else mask.dense(step.rows, step.keys, step.call.device)
            return {"kind": "dense", "shape": list(seen.shape), "bits": self.put(packed_bits(seen))}
        rule: dict[str, Any] = {"kind": kind}
        for field in fields(mask):  # type: ignore[arg-type]
            value = getattr(mask, field.name)
            if isinstance(value, Mask):
                rule.setdefault("of", []).append(self.mask(value, step))
            else:
                rule[field.name] = self.put(value) if isinstance(value, Tensor) else value
        return rule


def _read(file: Any, size: int, device: torch.device) -> Report:
    header = file.metadata() or {}
    if header.get("format") != FORMAT:
        raise Unfit("this is a safetensors file but no report of regard; seen.save(path) writes those")
    if header.get("version") != str(VERSION):
        version = readable(header.get("version"))
        raise Unfit(f"the report has version {version} and this regard reads {VERSION}; update regard")
    with checks.damage_refused("the header does not describe a report"):
        report = parse_json(header["report"], MOST + size // 4)
        reader = _Reader(file, size, device, [checks.text_of_plain(text) for text in report.get("texts", [])])
        collect = frozenset(map(str, report["collect"]))
        check_collected(collect)
        keep = report["keep"]
        forwards = []
        for one in report["forwards"]:
            records = [reader.record(layer) for layer in one["layers"]]
            forwards.append(Forward(whole_number(one["number"], "number"), in_slots(records)))
        require(keep is None or isinstance(keep, bool), f"keep is {readable(repr(keep))}")
        return forwards, collect, keep


class _Reader:
    """Reads the tensors of a file, each after a check of its shape."""

    def __init__(self, file: Any, size: int, device: torch.device, texts: Sequence[TextTokens]) -> None:
        self._file, self._size, self._device, self._texts = file, size, device, texts
        self._known = set(file.keys())
        self._work = checks.Work(size)
        self._read: dict[str, Tensor] = {}
        self._extremes: checks.Extremes = {}
        self._masks: dict[tuple[str, tuple[int, ...]], PackedMask] = {}  # one for all layers that name it

    def get(self, name: Any, axes: Sequence[str] | None, sizes: dict[str, int], what: str) -> Tensor:
        """The tensor, if its shape has these sizes."""
        require(isinstance(name, str) and name in self._known, f"{what} is missing")
        shape = tuple(self._file.get_slice(name).get_shape())
        if axes is not None:
            fits = len(shape) == len(axes) and all(
                axis == "?" or size == sizes[axis.upper()] or (axis.islower() and size == 1)
                for axis, size in zip(axes, shape, strict=True)
            )
            wanted = ", ".join("any" if a == "?" else str(sizes[a.upper()]) for a in axes)
            require(fits, f"{what} is {shape} and should be ({wanted})")
        if name not in self._read:
            self._read[name] = self._file.get_tensor(name)
        return self._read[name]

    def record(self, layer: dict[str, Any]) -> Record:
        sizes = {"B": whole_number(layer["B"], "B"), "H": whole_number(layer["H"], "H", checks.MOST_HEADS)}
        require(checks.short_text(layer["name"]) and bool(layer["steps"]), "a layer has no name or no steps")
        shared = None if layer["shared"] is None else self.get(layer["shared"], "B???", sizes, "keys")
        record = Record(layer["name"], [self.step(layer["name"], one, sizes, shared) for one in layer["steps"]], shared)
        several = record.steps[:2]  # a file of an earlier version does not say it
        record.grew = bool(layer.get("grew", several[-1].keys == several[0].keys + several[-1].rows))
        require(all(keys.start >= 0 for _, keys in record.spans()), f"{record.name}: a step has too many keys")
        B, _, T, S = record.sizes
        texts: list[list[TextTokens] | None] = []
        for name, size in (("query_texts", T), ("key_texts", S)):
            numbers = layer.get(name)
            texts.append(None if numbers is None else [self._texts[whole_number(one, name)] for one in numbers])
            fits = numbers is None or (len(numbers) == B and all(len(text) == size for text in texts[-1] or ()))
            require(fits, f"{record.name}: {name} should be {B} texts of {size} tokens")
        record.texts = RecordTexts(texts[0], texts[1], NO_TEXTS)
        return record

    def step(self, name: str, step: dict[str, Any], sizes: dict[str, int], shared: Tensor | None) -> RecordedCall:
        sizes = sizes | {"T": whole_number(step["T"], "T"), "S": whole_number(step["S"], "S")}
        T, S = sizes["T"], sizes["S"]
        checks.check_sizes(name, sizes, self._size)
        measured = {statistic: self._statistic(name, statistic, at, sizes) for statistic, at in step["found"].items()}
        present = [part for part in _PARTS if part in step]
        parts: Any = {part: self.get(step[part], _PARTS[part], sizes, f"{name}: {part}") for part in present}
        checks.check_parts(name, parts, self._extremes)
        extra = whole_number(step.get("extra", 0), "extra")
        basis = Basis.of_plain(step["basis"]) if "basis" in step else Basis()
        require(extra <= max(S - T, 0), f"{name}: {extra} of {S} keys are said to be extra")
        if step["kept"]:
            attention, shares = self._attention(name, step, parts, sizes, shared)
            scores = math.prod(sizes.values())
            self._work.add(name, scores, 0 if "visible" in measured or is_counted_by_mask(attention) else scores)
        else:
            attention, shares = self._not_kept(name, measured, sizes), False
        for together in _TOGETHER:
            shapes = [measured[one].shape for one in together if one in measured]
            require(len(shapes) != 1 and len(set(shapes)) < 2, f"{name}: {' and '.join(together)} belong together")
        real, tokens, across = parts.get("real"), parts.get("tokens"), step["across"] is True
        origin = Origin(name, real, tokens, across, extra=extra, basis=basis)
        return RecordedCall(WatchedCall(attention, origin), bool(step["kept"]), measured, shares)

    def _attention(
        self, name: str, step: dict[str, Any], parts: Any, sizes: dict[str, int], shared: Tensor | None
    ) -> tuple[Attention, bool]:
        """What weights are computed from, and whether its keys are those of all steps together."""
        B, H, T, S = (sizes[axis] for axis in "BHTS")
        require(_parts(step["mask"]) <= _MOST_PARTS, f"{name}: its mask has more than {_MOST_PARTS} parts")
        mask, scale, shares = self.mask(step["mask"]), float(step["scale"]), step["shares_keys"] is True
        mask.check(B, H, T, S)
        require(math.isfinite(scale), f"{name}: scale is {scale}")
        if shares:
            if shared is None or shared.shape[2] < S:
                raise Unfit(f"{name}: the keys of all steps together are missing or too few for {S}")
            parts["k"] = shared.new_empty(B, shared.shape[1], S, 0)
        if "weights" in parts:
            if step.get("mask_is_whole") is not True:  # of an earlier version, where a weight of 0 was hidden, too
                mask = mask & mask_written_out(parts["weights"] > 0)
            return OwnWeights(parts["weights"], mask), shares
        require("q" in parts and "k" in parts, f"{name}: neither weights nor queries and keys are there")
        q, k, bias, alibi = (parts.get(part) for part in ("q", "k", "bias", "alibi"))
        keys = shared if shares and shared is not None else k
        fits = keys.shape[1] > 0 and H % keys.shape[1] == 0 and keys.shape[3] == q.shape[3]
        require(fits or not H, f"{name}: keys {tuple(keys.shape)} do not fit queries {tuple(q.shape)}")
        require(q.shape[3] > 0 or not q.shape[2], f"{name}: queries have width 0")
        return QK(q=q, k=k, mask=mask, scale=scale, bias=bias, alibi=alibi), shares

    def _statistic(self, name: str, statistic: str, at: Any, sizes: dict[str, int]) -> Tensor:
        require(statistic in _AXES, f"{readable(statistic)} is no statistic of version {VERSION}")
        what, T, S = f"{name}: {statistic}", sizes["T"], sizes["S"]
        tensor = self.get(at, _AXES[statistic], sizes, what)
        checks.check_dtype(what, tensor, "whole numbers" if statistic in _INTEGERS else "numbers")
        if statistic not in STORED:
            span: tuple[float, float] = 0, {"queries": T, "visible": S, "even_distance": max(T, S)}[statistic]
        elif statistic in _INTEGERS:
            span = -1, S - 1
        else:  # with room for rounding
            one = STORED[statistic]
            most = one.most(S) if one.limit is None else one.limit(T, S)
            span = -0.1 * most, 1.1 * most + 0.1
        checks.check_range(what, tensor, *span, self._extremes)
        return tensor

    def _not_kept(self, name: str, measured: dict[str, Tensor], sizes: dict[str, int]) -> QK:
        """Queries and keys of width 0, which only have sizes."""
        B, H, T, S = (sizes[axis] for axis in "BHTS")
        # The file has no masks, so it must have what would be counted from them.
        counted = {"visible", "even_distance"} | ({"queries"} if "received_mean" in measured else set())
        require(counted <= measured.keys(), f"{name}: {', '.join(sorted(counted - measured.keys()))} is missing")
        return QK(q=torch.empty(B, H, T, 0, device=self._device), k=torch.empty(B, 1, S, 0, device=self._device))

    def mask(self, rule: dict[str, Any]) -> Mask:
        """A mask from its rule."""
        kind = rule["kind"]
        if kind == "dense":
            return self._packed(rule)
        require(isinstance(kind, str) and kind in MAKERS, f"no mask is called {readable(repr(kind))}")
        inside = [self.mask(one) for one in rule.get("of", ())]
        values = {name: value for name, value in rule.items() if name not in ("kind", "of")}
        for name, value in values.items():
            is_tensor, what = isinstance(value, str), f"a {kind}"
            values[name] = self.get(value, None, {}, kind) if is_tensor else whole_number(value, what, LARGEST_WINDOW)
        return MAKERS[kind](*inside, **values)

    def _packed(self, rule: dict[str, Any]) -> Mask:
        shape = tuple(whole_number(size, "a mask's size") for size in rule["shape"])
        require(2 <= len(shape) <= 4, f"a mask has {len(shape)} axes")
        bits = self.get(rule["bits"], "S", {"S": -(-math.prod(shape) // 8)}, "mask")
        require(bits.dtype is torch.uint8, f"mask is {bits.dtype} and should be bits")
        return self._masks.setdefault((rule["bits"], shape), PackedMask(bits, shape))


class PackedMask(Dense):
    """A dense mask that is kept as bits, eight to a byte, and written out as a tensor when somebody asks for it.

    >>> mask = PackedMask(packed_bits(torch.tensor([[True, False], [True, True]])), (2, 2))
    >>> mask.seen
    tensor([[ True, False],
            [ True,  True]])
    """

    bits: Tensor
    shape: tuple[int, ...]

    def __init__(self, bits: Tensor, shape: tuple[int, ...]) -> None:
        self.__dict__.update(bits=bits, shape=shape)  # a Dense is frozen

    @cached_property
    def seen(self) -> Tensor:
        """The mask as a bool tensor."""
        flat = np.unpackbits(self.bits.cpu().numpy(), count=math.prod(self.shape), bitorder="little")
        return torch.from_numpy(flat).view(torch.bool).reshape(self.shape).to(self.bits.device)

    @property
    def name(self) -> str:
        """Its name in tables."""
        return f"dense{self.shape}"

    def check(self, B: int, H: int, T: int, S: int) -> None:
        """Does it fit these weights? By its shape alone."""
        Dense(torch.empty(self.shape, dtype=torch.bool, device="meta")).check(B, H, T, S)


def _parts(rule: Any) -> int:
    """How many masks a mask is made of, itself included."""
    inside, count = [rule], 0
    while inside and count <= _MOST_PARTS:
        inside += inside.pop().get("of", ())
        count += 1
    return count


def packed_bits(seen: Tensor) -> Tensor:
    """A bool tensor as bits, eight to a byte.

    >>> packed_bits(torch.tensor([True, False, True]))
    tensor([5], dtype=torch.uint8)
    """
    packed = np.packbits(seen.detach().cpu().flatten().numpy(), bitorder="little")
    return torch.from_numpy(packed).to(seen.device)

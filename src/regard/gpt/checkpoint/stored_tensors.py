"""The tensors in the files of a directory, found by their headers and matched to the weights of a model.

Nothing is read but headers: every name, shape, dtype and size is checked before memory is allocated. JSON files are
read here too, with the same care.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import torch

from regard.gpt.checkpoint.weight_names import BUFFERS, HEAD, LAYOUTS, Place, prefixed
from regard.gpt.config import PRESETS, GPTConfig
from regard.support.arguments import name_of
from regard.support.printable import readable
from regard.support.untrusted_json import DIGITS, parse_json

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "pytorch_model.pt", "model.pt", "model.pth")
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
NOTHING_LOADED = "Nothing was loaded."
MOST_LISTED = 10  # problems or names in an error message
# By their names in safetensors, without types smaller than a byte, which torch cannot compute with.
DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
    "U64": torch.uint64, "U32": torch.uint32, "U16": torch.uint16, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
LONGEST_HEADER = 4 << 20  # bytes; enough for 15,000 tensors, and parsed in less than 50 MB of memory
MOST_AXES = 8
LARGEST = 2**63 - 1  # the largest size that torch can represent

DOWNLOAD = "download it again"
UNTRUSTED = "get the file from somebody you trust"


class Stored(NamedTuple):
    """The header entry of one tensor."""

    dtype: torch.dtype
    shape: tuple[int, ...]


def read_header(path: Path) -> dict[str, Stored]:
    """The tensors of a safetensors file, name → dtype and shape, from its header, checked against the file's size.

    A file is 8 bytes with the header's length, the header as JSON, and the tensors' bytes one after the other without
    gaps. Anything else is a ValueError.
    """
    size = path.stat().st_size
    with _refusals_of(path), path.open("rb") as file:
        if size < 8:
            _refuse(f"a safetensors file starts with 8 bytes, and this one has {size}" if size else "the file is empty")
        length = int.from_bytes(file.read(8), "little")
        if length > size - 8:
            what = f"the header should have {length:,} bytes, but only {size - 8:,} follow"
            _refuse(what, f"{DOWNLOAD}, and see that it is a safetensors file")
        _check_length("the header", length)
        header = _parse_object(file.read(length), "the header")
        metadata = header.pop("__metadata__", {})
        if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
            _refuse("__metadata__ must be a JSON object of texts")
        entries = {name: _parse_entry(readable(name), entry) for name, entry in header.items()}
        _check_ranges(sorted((*place, readable(name)) for name, (_, place) in entries.items()), size - 8 - length)
    return {name: stored for name, (stored, _) in entries.items()}


def read_json(path: Path, digits: int = DIGITS) -> dict[str, Any]:
    """A JSON object from a file, without duplicate names; anything else is a ValueError."""
    with _refusals_of(path):
        _check_length("the file", path.stat().st_size)
        return _parse_object(path.read_bytes(), "the file", digits)


@contextmanager
def _refusals_of(path: Path) -> Iterator[None]:
    """Put the name of the file before the errors about what it holds."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{path}: {error}. {NOTHING_LOADED}") from None


def _refuse(what: str, remedy: str = DOWNLOAD) -> NoReturn:
    raise ValueError(f"{what}; {remedy}")


def _check_length(what: str, length: int) -> None:
    if length > LONGEST_HEADER:
        _refuse(f"{what} has {length:,} bytes, more than the {LONGEST_HEADER:,} that any model needs", UNTRUSTED)


def _parse_object(raw: bytes, what: str, digits: int = DIGITS) -> dict[str, Any]:
    try:
        content = parse_json(raw, digits=digits)
    except ValueError as error:  # not UTF-8, not JSON, too large or too deep
        _refuse(f"{what} is no JSON of the kind that belongs here: {readable(error, 160)}")
    if not isinstance(content, dict):
        _refuse(f"{what} must be a JSON object, but is a {type(content).__name__}")
    return content


def _parse_entry(name: str, entry: object) -> tuple[Stored, tuple[int, int]]:
    """The entry of one tensor, and where its bytes begin and end."""
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        _refuse(f"{name} must have dtype, shape and data_offsets, and nothing else")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        known = ", ".join(DTYPES)
        _refuse(f"{name} has dtype {readable(dtype)}, which is none of {known}", "convert it to one of these")
    if not _are_sizes(shape) or len(shape) > MOST_AXES:
        _refuse(f"{name} has shape {readable(shape)}, which is no list of up to {MOST_AXES} whole numbers")
    if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        _refuse(f"{name} has data_offsets {readable(offsets)}, which must be a begin and an end after it")
    begin, end = offsets
    needed, held = DTYPES[dtype].itemsize * math.prod(shape), end - begin
    if needed != held:
        _refuse(f"{name}, {tuple(shape)} of {dtype}, needs {needed:,} bytes, but its place has {held:,}")
    return Stored(DTYPES[dtype], tuple(shape)), (begin, end)


def _are_sizes(values: object) -> bool:
    return isinstance(values, list) and all(type(n) is int and 0 <= n <= LARGEST for n in values)


def _check_ranges(ranges: list[tuple[int, int, str]], size: int) -> None:
    """The tensors' bytes must fill the rest of the file, without gaps or overlaps."""
    reached = 0
    for begin, end, name in ranges:
        if begin < reached:
            _refuse(f"{name} begins at byte {begin:,}, inside another tensor that ends at {reached:,}", UNTRUSTED)
        if begin > reached:
            _refuse(f"the bytes from {reached:,} to {begin:,}, before {name}, belong to no tensor", UNTRUSTED)
        reached = end
    if reached > size:
        what = f"the tensors need {reached:,} bytes, but the file has {size:,} for them"
        _refuse(what, f"{DOWNLOAD}: the file is shorter than its header says")
    if reached < size:
        what = f"the tensors end at byte {reached:,}, but {size - reached:,} more follow"
        _refuse(what, f"{DOWNLOAD}: the file is longer than its header says")


class StoredTensor(NamedTuple):
    """A tensor in a file."""

    file: Path
    name: str
    stored: Stored


def open_tensors(file: Path) -> Any:
    """Open a safetensors file whose header was checked."""
    from safetensors import SafetensorError, safe_open

    try:
        return safe_open(file, framework="pt")
    except SafetensorError as error:
        raise ValueError(f"{file}: safetensors cannot read it: {readable(error, 160)}. {NOTHING_LOADED}") from None


def list_tensors(directory: Path) -> tuple[dict[str, StoredTensor], Path]:
    """The tensors in a directory by name; and the file to name when something is wrong."""
    if (directory / SINGLE).is_file():
        file = directory / SINGLE
        return {name: StoredTensor(file, name, stored) for name, stored in read_header(file).items()}, file
    if (directory / INDEX).is_file():
        return _sharded_tensors(directory), directory / INDEX
    pickles = [name for name in PICKLES if (directory / name).exists()]
    if pickles:
        raise ValueError(
            f"{directory} holds {pickles[0]} and no {SINGLE}. Opening a pickle runs whatever code is in it, so it is "
            "not opened here; if you trust it, convert it with transformers: "
            f"AutoModelForCausalLM.from_pretrained({str(directory)!r}).save_pretrained(DIRECTORY). {NOTHING_LOADED}"
        )
    raise ValueError(f"{directory} has neither {SINGLE} nor {INDEX}; is it the directory of a model? {NOTHING_LOADED}")


def _sharded_tensors(directory: Path) -> dict[str, StoredTensor]:
    index = directory / INDEX
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map or not all(isinstance(f, str) for f in weight_map.values()):
        raise ValueError(f"{index}: weight_map must give a file for every tensor; download it again. {NOTHING_LOADED}")
    files: dict[str, set[str]] = {}  # the tensors that each should hold
    for name, file in weight_map.items():
        files.setdefault(file, set()).add(name)
    for file in sorted(files):
        if not re.fullmatch(r"[\w-][\w.-]*\.safetensors", file) or len(file.encode()) > 255:  # no path out of here
            raise ValueError(f"{index}: {readable(file)} is no plain name of a .safetensors file. {NOTHING_LOADED}")
        if not (directory / file).is_file():
            raise ValueError(f"{index}: {readable(file)} is not there; download it too. {NOTHING_LOADED}")
    tensors: dict[str, StoredTensor] = {}
    for file, promised in sorted(files.items()):
        held = read_header(directory / file)
        for wrong, what in ((promised - held.keys(), "should hold"), (held.keys() - promised, "should not hold")):
            if wrong:
                raise ValueError(
                    f"{directory / file}: by the index it {what} {listed(sorted(wrong))}; "
                    f"download the files again, together. {NOTHING_LOADED}"
                )
        tensors |= {name: StoredTensor(directory / file, name, stored) for name, stored in held.items()}
    return tensors


def match_tensors(
    config: GPTConfig, kind: str, places: Mapping[str, Place], tensors: Mapping[str, StoredTensor], where: Path
) -> dict[str, StoredTensor]:
    """Name in `places` → tensor in a file, each there and of the right shape; else a ValueError lists what is wrong."""
    prefix, available = LAYOUTS[kind].prefix, dict[str, StoredTensor]()
    for name, tensor in tensors.items():
        same = available.setdefault(name.removeprefix(prefix), tensor)
        if same is not tensor:
            both = f"{readable(same.name)} and {readable(name)}"
            raise ValueError(f"{where}: {both} are one and the same tensor. {NOTHING_LOADED}")
    shapes = {place.name: place.shape for place in places.values()}
    has_prefix = any(name.startswith(prefix) for name in tensors)
    if kind != "regard":  # in files of others a tied head may have two names, and old ones hold buffers
        if config.tied and HEAD in available:
            _merge_tied_head(available, places["token_embedding.weight"].name, where)
        available = {name: t for name, t in available.items() if name in shapes or not name.endswith(BUFFERS)}
    refuse_problems(_problems(shapes, available, prefix if has_prefix else "", _preset_name(config)), where)
    return {name: available[name] for name in shapes}


def refuse_problems(found: Iterable[str], where: Path) -> None:
    """A ValueError that lists what is wrong with tensors, if anything is."""
    problems = sorted(found)
    if len(problems) == 1:
        raise ValueError(f"{where.name}: {problems[0]}. {NOTHING_LOADED}")
    if problems:
        lines = "\n".join(f"  {line}" for line in problems[:MOST_LISTED])
        more = f"\n  and {len(problems) - MOST_LISTED} more" if len(problems) > MOST_LISTED else ""
        raise ValueError(f"{where.name}: {len(problems)} tensors do not fit.\n{lines}{more}\n{NOTHING_LOADED}")


def _merge_tied_head(available: dict[str, StoredTensor], embedding: str, where: Path) -> None:
    """A tied head is the embedding: one tensor with two names, of which a file may hold either or both."""
    head = available.pop(HEAD)
    same = available.setdefault(embedding, head)
    if same is head or same.stored != head.stored:
        return
    with open_tensors(head.file) as first, open_tensors(same.file) as second:
        is_same = torch.equal(first.get_tensor(head.name), second.get_tensor(same.name))
    if not is_same:
        raise ValueError(
            f"{where}: {head.name} and {same.name} differ, but config.json says that they are one tensor; "
            f"set tie_word_embeddings to false there. {NOTHING_LOADED}"
        )


def _problems(
    shapes: Mapping[str, tuple[int, ...]], available: Mapping[str, StoredTensor], prefix: str, model: str
) -> Iterator[str]:
    for name, shape in shapes.items():
        if name not in available:
            yield f"{prefixed(name, prefix)} is missing; {model} needs it, {shape}"
            continue
        shown, stored = readable(available[name].name), available[name].stored
        if stored.shape != shape:
            yield f"{shown} is {stored.shape}; {model} needs {shape}"
        elif stored.dtype not in FLOATS:
            yield f"{shown} is {name_of(stored.dtype)}; weights are float64, float32, float16 or bfloat16"
    for name in available.keys() - shapes.keys():
        yield f"{readable(available[name].name)} is not part of {model}"


def listed(names: list[str]) -> str:
    """The first names of a list, for an error message."""
    more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    return ", ".join(map(readable, names[:MOST_LISTED])) + more


def _preset_name(config: GPTConfig) -> str:
    """The preset with this config, for error messages; else config.json."""
    ignored = {"end": None, "dropout": 0.0}
    same = (name for name, preset in PRESETS.items() if preset.with_(**ignored) == config.with_(**ignored))
    return next(same, "config.json")

"""The tensors in the files of a directory, found by their headers and matched to the weights of a model.

Nothing is read but headers: every name, shape and dtype is checked before memory is allocated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.gpt.checkpoint.header import Stored, read_header, read_json
from regard.gpt.checkpoint.weight_names import BUFFERS, HEAD, LAYOUTS, Place, prefixed
from regard.gpt.config import PRESETS, GPTConfig
from regard.support.arguments import name_of
from regard.support.printable import readable

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "pytorch_model.pt", "model.pt", "model.pth")
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
NOTHING_LOADED = "Nothing was loaded."
MOST_LISTED = 10  # problems or names in an error message


class StoredTensor(NamedTuple):
    """A tensor in a file."""

    file: Path
    name: str
    stored: Stored

    def read(self) -> Tensor:
        """The tensor itself."""
        with open_tensors(self.file) as file:
            tensor: Tensor = file.get_tensor(self.name)
            return tensor


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
    if config.tied and HEAD in available:
        _merge_tied_head(available, places["token_embedding.weight"].name, where)
    shapes = {place.name: place.shape for place in places.values()}
    has_prefix = any(name.startswith(prefix) for name in tensors)
    problems = sorted(_problems(shapes, available, prefix if has_prefix else "", _preset_name(config)))
    if len(problems) == 1:
        raise ValueError(f"{where.name}: {problems[0]}. {NOTHING_LOADED}")
    if problems:
        lines = "\n".join(f"  {line}" for line in problems[:MOST_LISTED])
        more = f"\n  and {len(problems) - MOST_LISTED} more" if len(problems) > MOST_LISTED else ""
        raise ValueError(f"{where.name}: {len(problems)} tensors do not fit.\n{lines}{more}\n{NOTHING_LOADED}")
    return {name: available[name] for name in shapes}


def _merge_tied_head(available: dict[str, StoredTensor], embedding: str, where: Path) -> None:
    """A tied head is the embedding: one tensor with two names, of which a file may hold either or both."""
    head = available.pop(HEAD)
    same = available.setdefault(embedding, head)
    if same is not head and head.stored == same.stored and not torch.equal(head.read(), same.read()):
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
        if not name.endswith(BUFFERS):
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

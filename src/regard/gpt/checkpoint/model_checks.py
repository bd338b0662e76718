"""The guard of both ways to load a model: GPT.from_pretrained, and transformers for the commands that watch any model.

Before a model is built: layers that its files cannot hold are refused. While it is built: no more and no larger
weights than the files have. Afterwards: weights that are NaN or infinite are refused by name.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.gpt.checkpoint.stored_tensors import NOTHING_LOADED, StoredTensor, listed
from regard.support.arguments import name_of
from regard.support.printable import readable

MOST_MISSING = 200  # layers without tensors whose names are listed
_SPARE_WEIGHTS, _SPARE_ELEMENTS, _SPARE_BUFFERS = 2000, 4 << 20, 32 << 20  # number, elements, bytes
# Counts that the configs of transformers go through one by one, and their largest values.
_COUNTED = re.compile(r"(?<!_per)(?:^|_)(?:layers?|blocks?|depth)$|dense_replace$")
_LABELS, _MOST_LABELS = re.compile(r"num_labels$"), 100_000


def check_layers(layers: float, tensors: int, least: int, name: str, where: Path) -> None:
    """Refuse more layers than so many tensors can make, before their names are listed; least: tensors of a layer."""
    if layers > tensors // least + MOST_MISSING:
        raise ValueError(
            f"{where.parent / 'config.json'}: {layers} layers cannot be made of the {tensors} tensors in {where.name} "
            f"({readable(name)}); the two do not belong together. {NOTHING_LOADED}"
        )


def check_counts(content: Any, tensors: int, where: Path) -> None:
    """Refuse a config.json of any model whose layers or labels alone would take minutes."""
    for name, value in content.items() if isinstance(content, dict) else ():
        if type(value) in (int, float) and _COUNTED.search(name):
            check_layers(value, tensors, 1, name, where)
        if type(value) in (int, float) and _LABELS.search(name) and value > _MOST_LABELS:
            rule = f"it must be at most {_MOST_LABELS:,}"
            raise ValueError(f"{where.parent / 'config.json'}: {readable(name)} is {value}; {rule}. {NOTHING_LOADED}")
        for inner in value if isinstance(value, list) else [value]:
            check_counts(inner, tensors, where)


@contextmanager
def no_more_than(tensors: Mapping[str, StoredTensor], where: Path, packed: bool = False) -> Iterator[None]:
    """Inside this block, a model whose weights are more or larger than those in the files is an error.

    packed: quantised weights, several in an element.
    """
    stored = [one.stored for one in tensors.values()]
    elements = sum(math.prod(one.shape) * (8 * one.dtype.itemsize if packed else 1) for one in stored)
    memory = sum(math.prod(one.shape) * one.dtype.itemsize for one in stored)
    # A tied head is built before it is tied, and some weights are joined in files.
    most = {"number": 4 * len(stored) + _SPARE_WEIGHTS, "elements": 2 * elements + _SPARE_ELEMENTS}
    most["bytes of buffers"] = memory + _SPARE_BUFFERS
    thread, known, total = threading.get_ident(), set[tuple[int, str]](), dict.fromkeys(most, 0)

    def count(module: nn.Module, name: str, tensor: Tensor | None) -> None:
        if tensor is None or (id(module), name) in known or threading.get_ident() != thread:
            return
        known.add((id(module), name))
        is_weight = isinstance(tensor, nn.Parameter)
        total["number"] += 1
        total["elements" if is_weight else "bytes of buffers"] += tensor.numel() if is_weight else tensor.nbytes
        if any(total[what] > most[what] for what in most):
            at = f"{readable(name)} of {type(module).__name__}, {tuple(tensor.shape)}"
            raise ValueError(
                f"config.json needs more than the {len(stored)} tensors in {where.name} can be, such as {at}; "
                f"the two do not belong together. {NOTHING_LOADED}"
            )

    hooks = [
        torch.nn.modules.module.register_module_parameter_registration_hook(count),
        torch.nn.modules.module.register_module_buffer_registration_hook(count),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def check_finite(weights: Mapping[str, Tensor], where: Path) -> None:
    """Refuse weights that are NaN or infinite, by name: with them every number of the model would be NaN."""
    wrong = [name for name, weight in weights.items() if not _is_finite(weight)]
    if wrong:
        dtype = name_of(weights[wrong[0]].dtype)
        raise ValueError(
            f"{where}: {listed(wrong)} hold{'s' * (len(wrong) == 1)} NaN or infinite numbers in {dtype}; get the model "
            f"again, or from somebody whose training did not diverge. {NOTHING_LOADED}"
        )


def _is_finite(weight: Tensor) -> bool:
    """Are all its numbers finite? In one pass without a copy: the extremes of numbers with a NaN are NaN."""
    if not weight.is_floating_point() or weight.numel() == 0 or weight.itemsize < 2:
        return True
    return all(math.isfinite(extreme) for extreme in torch.aminmax(weight.detach()))

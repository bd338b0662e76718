"""Loading a model that transformers or `saving.save` wrote: from a directory, or by its name.

Everything is checked before anything is loaded: config.json, the headers of the files, and every tensor's name and
shape.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.gpt.checkpoint import model_directory
from regard.gpt.checkpoint.families import config_from_transformers
from regard.gpt.checkpoint.model_checks import check_finite, check_layers
from regard.gpt.checkpoint.model_directory import find_directory, model_inside
from regard.gpt.checkpoint.stored_tensors import (
    FLOATS,
    NOTHING_LOADED,
    StoredTensor,
    list_tensors,
    match_tensors,
    open_tensors,
    read_json,
)
from regard.gpt.checkpoint.typed_json import ConfigReader
from regard.gpt.checkpoint.weight_names import LAYOUTS, Place, places_in_file
from regard.gpt.config import GPTConfig
from regard.gpt.tokenizer.tokenizer import Tokenizer
from regard.support.printable import printable_errors

COMPILED = "_orig_mod."  # what torch.compile puts before every name
Model = TypeVar("Model", bound=nn.Module)


class _NoInitialization(TorchFunctionMode):
    """Skip the random initialization of weights that are about to be loaded; on the meta device it takes seconds."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in (Tensor.normal_, nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_):
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


@printable_errors()
def load_pretrained(
    model_class: type[Model],
    name_or_dir: str | os.PathLike[str],
    *,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> tuple[Model, Tokenizer | None]:
    """Build a model of this class from a directory that transformers or `save` wrote, or by its name on the hub.

    The directory holds config.json, and model.safetensors or its shards with their index; tokenizer.json, if present,
    is returned as well. See GPT.from_pretrained; GPT-2 may be stored as minGPT and nanoGPT do it, too.
    """
    if dtype is not None and dtype not in FLOATS:
        raise ValueError(f"dtype ({dtype}) must be one of {', '.join(map(str, FLOATS))}. {NOTHING_LOADED}")
    directory = find_directory(name_or_dir)
    config, content = _read_config(directory)
    kind = content["model_type"]
    tensors, where = list_tensors(directory)
    if all(name.startswith(COMPILED) for name in tensors):
        tensors = {name.removeprefix(COMPILED): tensor for name, tensor in tensors.items()}
    if kind == "gpt2":
        kind, config = _check_for_linear(config, content, tensors, where)
    check_layers(config.num_layers, len(tensors), 4, "the number of layers", where)  # a layer has 6 tensors or more
    places = places_in_file(config, kind)
    sources = match_tensors(config, kind, places, tensors, where)
    if dtype is None:  # the packaged model is stored in 16 bits to be small, but a CPU is fastest in 32
        dtype = torch.float32 if directory == model_directory.PACKAGED else _common_dtype(sources, where)
    tokenizer = Tokenizer.load(directory) if (directory / "tokenizer.json").is_file() else None

    try:
        with torch.device("meta"), _NoInitialization():
            model = model_class(config)
    except ValueError as error:
        raise ValueError(f"{directory / 'config.json'}: {error}. {NOTHING_LOADED}") from error
    place = torch.device("cpu" if device is None else device)
    # In place of to_empty, for which torch loads sympy.
    model = model.to(dtype)
    model._apply(lambda t: torch.empty(t.shape, dtype=t.dtype, device=place))  # type: ignore[no-untyped-call]
    _copy_weights(model, places, sources)
    check_finite(dict(model.named_parameters()), where)
    return model.eval(), tokenizer


def _read_config(directory: Path) -> tuple[GPTConfig, dict[str, Any]]:
    """The config of a model, and the content of its config.json; its model_type decides the names of weights."""
    path = directory / "config.json"
    if not path.is_file():
        inside = model_inside(directory)
        remedy = "is it the directory of a model?" if inside is None else f"did you mean {inside}?"
        raise ValueError(f"{directory} has no config.json; {remedy} {NOTHING_LOADED}")
    content = read_json(path)
    config = config_from_transformers(content, str(path))
    generation = directory / "generation_config.json"  # it takes precedence in transformers, too
    if generation.is_file() and (ends := read_json(generation)).get("eos_token_id") is not None:
        config = config.with_(end=ConfigReader(ends, str(generation)).end(None, config.vocab_size))
    return config, content


def _check_for_linear(
    config: GPTConfig, content: Mapping[str, Any], tensors: Mapping[str, StoredTensor], where: Path
) -> tuple[str, GPTConfig]:
    """How the weights of a GPT-2 are stored, told by the shape of the joined projection; and its config.

    nanoGPT's models may have no biases. The files do not say which GELU a model was trained with: minGPT has the tanh
    form and nanoGPT the exact one, so config.json must say it.
    """
    weight, bias = (
        tensors.get(LAYOUTS["gpt2"].prefix + name, tensors.get(name))
        for name in ("h.0.attn.c_attn.weight", "h.0.attn.c_attn.bias")
    )
    if weight is None or weight.stored.shape != (3 * config.d_model, config.d_model):
        return "gpt2", config
    if "activation_function" not in content:
        raise ValueError(
            f"{where}: weights are stored as nn.Linear has them, (out, in), so minGPT or nanoGPT wrote them and not "
            'transformers; config.json must then say which GELU they were trained with: "activation_function": '
            f'"gelu_new" for minGPT, "gelu" for nanoGPT. {NOTHING_LOADED}'
        )
    return "linear gpt2", config if bias is not None else config.with_(qkv_bias=False, bias=False)


def _common_dtype(sources: Mapping[str, StoredTensor], where: Path) -> torch.dtype:
    """The dtype of all weights."""
    counts = Counter(tensor.stored.dtype for tensor in sources.values())
    if len(counts) > 1:
        dtypes = ", ".join(f"{n} of {dtype}" for dtype, n in counts.most_common())
        raise ValueError(f"{where}: tensors have several dtypes, {dtypes}; choose one with dtype=. {NOTHING_LOADED}")
    return next(iter(counts))


def _copy_weights(model: nn.Module, places: Mapping[str, Place], sources: Mapping[str, StoredTensor]) -> None:
    """Copy each tensor from its file into its parameter, so that nothing is in memory twice."""
    parameters = dict(model.named_parameters())
    assert parameters.keys() == places.keys()
    with torch.no_grad(), ExitStack() as stack:
        files = {tensor.file: None for tensor in sources.values()}
        handles = {file: stack.enter_context(open_tensors(file)) for file in files}
        for name, place in places.items():
            source = sources[place.name]
            tensor = handles[source.file].get_slice(source.name)  # reads nothing yet
            rows = slice(*place.part) if place.part else slice(None)
            parameters[name].copy_(tensor[:, rows].mT if place.transposed else tensor[rows])

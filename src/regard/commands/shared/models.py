"""Models for commands: a GPT of ours or a model of transformers, from a directory, the hub or the package.

Weights are read from safetensors only, and no code that comes with a model is run.
"""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.commands.shared.options import TINY
from regard.commands.shared.with_transformers import (
    TOKENIZER_FILES,
    check_files,
    load_model,
    load_tokenizer,
    quiet_transformers,
)
from regard.gpt.checkpoint.families import KINDS
from regard.gpt.checkpoint.model_directory import (
    HUB_NAMES,
    PATTERNS,
    as_path,
    check_hub,
    download,
    find_directory,
    model_inside,
)
from regard.gpt.checkpoint.stored_tensors import read_json
from regard.gpt.model import GPT
from regard.gpt.tokenizer.tokenizer import panics_refused
from regard.gpt.train.processes import find_device
from regard.support.printable import readable

_MISSING = "other types are loaded with transformers, which is missing"
_SAVED = "model.save_pretrained() wrote"


class ModelWithText(NamedTuple):
    """A model, and a text as its forward takes it."""

    model: nn.Module
    inputs: dict[str, Tensor]  # keyword arguments of forward
    tokenizer: Any  # reads the token ids as texts
    layers: int | None  # None where the number of attention layers is unknown

    @property
    def tokens(self) -> int:
        """The number of tokens of the text."""
        return next(iter(self.inputs.values())).shape[1]


Reader = Callable[[str, int | None], ModelWithText]  # reads a text, at most so many tokens of it


class TextTooLong(ValueError):
    """A text has more tokens than the model reads."""

    def __init__(self, tokens: int, longest: int) -> None:
        most = f"the model reads at most {longest}; add --max-tokens {longest}"
        super().__init__(f"the text has {tokens} tokens and {most}")
        self.tokens, self.longest = tokens, longest


def load_gpt(name: str, device: str | None) -> GPT:
    """A GPT of ours with its tokenizer, on the device; by default, on a GPU if there is one."""
    target = find_device(device)
    dtype = torch.float32 if target.type == "cpu" else None  # float32 is the fastest dtype on most CPUs
    model = GPT.from_pretrained(name, device=target, dtype=dtype)
    if model.tokenizer is None:
        raise ValueError(f"{name} has no tokenizer.json, so no text can be read; put its tokenizer beside the weights")
    return model


def _check_family(name: str, reason: str, remedy: str) -> None:
    """Refuse a model that is no GPT of ours, by the model_type in its config.json; what is missing is told later."""
    path = find_directory(name) / "config.json"
    kind = read_json(path).get("model_type") if path.is_file() else None
    if isinstance(kind, str) and kind not in KINDS:
        raise ValueError(
            f"{name} is of type {readable(kind)}; regard by itself reads the families of GPT-2 and Llama "
            f"({', '.join(one for one in KINDS if one != 'regard')}), and {reason}; {remedy}"
        )


def load_reader(name: str, device: str, needs_steps: str | None = None) -> Reader:
    """Load a model once, to read many texts: whatever load_gpt opens, or any model that transformers can load.

    Without transformers, a GPT of ours from a directory or the hub. needs_steps: an option that shows the steps of
    layers, which only a GPT of ours names; it is loaded as one, or the error names the option.
    """
    if name == TINY:
        return _reader_of_gpt(name, device)
    path = as_path(name)
    name = HUB_NAMES.get(name, name) if not path.exists() else name
    name = str(path) if name.startswith("~") else name
    if needs_steps is not None:
        _check_family(name, f"{needs_steps} needs a model that names its steps", "leave the option out")
    elif find_spec("transformers") is not None:
        return _reader_of_either(name, device)
    else:
        _check_family(name, _MISSING, "pip install transformers")
    return _reader_of_gpt(name, device)


def _reader_of_either(name: str, device: str) -> Reader:
    """By transformers, or as a GPT of ours: of model_type "regard", and what transformers refuses."""
    path = Path(name) / "config.json"
    kind = read_json(path).get("model_type") if path.is_file() else None
    if kind == "regard":
        return _reader_of_gpt(name, device)
    try:
        return _reader_with_transformers(name, device)
    except ValueError as error:
        if kind not in KINDS:
            raise
        try:
            return _reader_of_gpt(name, device)
        except ValueError:
            raise error from None


def _reader_of_gpt(name: str, device: str) -> Reader:
    model = load_gpt(name, device)

    def read(text: str, max_tokens: int | None) -> ModelWithText:
        assert model.tokenizer is not None
        ids = model.tokenizer.encode(text)[:max_tokens]
        _check_length(len(ids), model.config.context_length)
        return ModelWithText(model, {"ids": torch.tensor([ids])}, model.tokenizer, model.config.num_layers)

    return read


def _reader_with_transformers(name: str, device: str) -> Reader:
    with quiet_transformers() as transformers:
        config, model, tokenizer = _load(transformers, name, device)

    crosses = getattr(config, "is_encoder_decoder", False)
    layers = None if crosses else _number_in(config, "num_hidden_layers")

    def read(text: str, max_tokens: int | None) -> ModelWithText:
        truncation = {} if max_tokens is None else {"truncation": True, "max_length": max_tokens}
        with quiet_transformers(), panics_refused("the tokenizer cannot encode this text", hold_stderr=True):
            encoded = tokenizer(text, return_tensors="pt", verbose=False, **truncation)
        inputs = {name: encoded[name] for name in ("input_ids", "attention_mask") if name in encoded}
        _check_length(inputs["input_ids"].shape[1], _number_in(config, "max_position_embeddings"))
        if crosses:
            inputs["decoder_input_ids"] = inputs["input_ids"]  # the same text for encoder and decoder
        return ModelWithText(model, inputs, tokenizer, layers)

    return read


def _check_length(length: int, longest: int | None) -> None:
    if not length:
        raise ValueError("the tokenizer makes no token of this text; give it another")
    if longest is not None and 0 < longest < length:
        raise TextTooLong(length, longest)


def _load(transformers: Any, name: str, device: str) -> tuple[Any, nn.Module, Any]:
    """Config, model and tokenizer; every failure is one line with a remedy."""
    target = find_device(device)
    directory = _find_complete(name)
    check_files(directory)
    config, model = load_model(transformers, directory)
    reads = getattr(model, "main_input_name", "input_ids")
    if reads != "input_ids":
        in_python = f"with regard.watch(model) as seen: model({reads}=…)"
        raise ValueError(f"{name} reads {reads}, not text; watch it in Python: {in_python}")
    return config, model.to(target), load_tokenizer(transformers, directory, config)


def _find_complete(name: str) -> Path:
    """The directory of a model with its tokenizer, downloaded if the hub has it; what is incomplete is refused."""
    path = Path(name)
    if not path.exists():
        if path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
            raise ValueError(f"there is no directory {name}; give one that {_SAVED}, or a hub name")
        check_hub(name)
        path = download(name, [*PATTERNS, *TOKENIZER_FILES, "special_tokens_map.json", "added_tokens.json"])
    if not (path / "config.json").is_file():
        inside = model_inside(path)
        remedy = f"give a directory that {_SAVED}" if inside is None else f"did you mean {inside}?"
        raise ValueError(f"{name} has no config.json; {remedy}")
    if not any(file for pattern in TOKENIZER_FILES for file in path.glob(pattern)):
        # transformers would make an empty tokenizer, which reads nothing.
        raise ValueError(f"{name} has no tokenizer; tokenizer.save_pretrained({name!r}) adds one")
    return path


def _number_in(config: Any, name: str) -> int | None:
    number = getattr(config, name, None)
    return number if isinstance(number, int) else None

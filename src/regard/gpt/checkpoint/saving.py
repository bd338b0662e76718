"""Saving a model to a directory that `pretrained.load` and transformers read.

All files are written next to the old ones first and renamed last.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.gpt.checkpoint.families import config_to_transformers
from regard.gpt.checkpoint.stored_tensors import INDEX, listed
from regard.gpt.checkpoint.weight_names import LAYOUTS, Place, places_in_file, prefixed
from regard.gpt.tokenizer.tokenizer import Tokenizer
from regard.support.arguments import check_whole, name_of
from regard.support.files import atomically, write_and_sync

if TYPE_CHECKING:
    from regard.gpt.model import GPT

WEIGHTS = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors|model\.safetensors\.index\.json")


def save(
    model: GPT,
    directory: str | os.PathLike[str],
    *,
    shard_size: int = 5_000_000_000,
    state: Mapping[str, Tensor] | None = None,
) -> None:
    """Write a model to a directory: config.json, model.safetensors, and tokenizer.json if it has a tokenizer.

    transformers.AutoModelForCausalLM.from_pretrained(directory) gives the same results. A model that transformers
    has no class for (layer norms with rotary positions, say) is written with our own names, for `load` alone.

    shard_size: the largest size of a file in bytes; larger models are written in shards, with an index.
    state: the weights, if they are gathered from many processes and not in the model itself.

    An existing checkpoint is replaced once all of the new one is on the disk. If that fails (a full disk), the old one
    is untouched.
    """
    from huggingface_hub import split_state_dict_into_shards_factory

    check_whole(shard_size=shard_size)
    directory, weights = Path(directory), model.state_dict() if state is None else state
    if directory.exists() and not directory.is_dir():
        raise ValueError(f"{directory} is a file; give the name of a directory")
    config = config_to_transformers(model.config)
    places = places_in_file(model.config, config["model_type"])
    missing = [name for name in places if name not in weights or weights[name].is_meta]
    if missing:
        raise ValueError(f"the model has no weights for {listed(missing)}; was a layer replaced? Nothing was saved.")
    config["dtype"] = name_of(weights["token_embedding.weight"].dtype)
    prefix = LAYOUTS[config["model_type"]].prefix
    tensors: dict[str, list[tuple[str, Place]]] = {}  # name in a file → which of our weights it is made of
    for name, place in places.items():
        tensors.setdefault(prefixed(place.name, prefix), []).append((name, place))
    split = split_state_dict_into_shards_factory(
        tensors,
        get_storage_size=lambda parts: sum(weights[name].nbytes for name, _ in parts),
        filename_pattern="model{suffix}.safetensors",
        max_shard_size=shard_size,
    )
    texts = {"config.json": _json(config)}
    if split.is_sharded:
        texts[INDEX] = _json({"metadata": split.metadata, "weight_map": split.tensor_to_filename})
    texts |= _other_files(model, directory, config)

    directory.mkdir(parents=True, exist_ok=True)
    with ExitStack() as all_or_nothing:
        for file, text in texts.items():
            all_or_nothing.enter_context(atomically(directory / file)).write_text(text, encoding="utf-8")
        for file, names in split.filename_to_tensors.items():
            shard = {name: _join(tensors[name], weights) for name in names}
            write_and_sync(all_or_nothing.enter_context(atomically(directory / file)), shard, {"format": "pt"})
    # Weight files of an earlier checkpoint would be read instead of these, or together with them.
    for old in directory.iterdir():
        if WEIGHTS.fullmatch(old.name) and old.name not in (*split.filename_to_tensors, *texts):
            old.unlink()


def _join(parts: list[tuple[str, Place]], weights: Mapping[str, Tensor]) -> Tensor:
    """A tensor as the file has it: transposed, or concatenated from parts."""
    tensors = [weights[name].mT if place.transposed else weights[name] for name, place in parts]
    return tensors[0] if len(tensors) == 1 else torch.cat(tensors, dim=-1)


def _other_files(model: GPT, directory: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """The tokenizer, if the directory has another; and generation_config.json, if an older model left one."""
    texts, tokenizer = {}, model.tokenizer
    if (directory / "generation_config.json").is_file():  # it would give the older model's end of text
        ends = {key: config[key] for key in ("eos_token_id",) if config.get(key) is not None}
        texts["generation_config.json"] = _json(ends)
    if tokenizer is not None and not _has_tokenizer(directory, tokenizer):
        about = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": model.config.context_length}
        end = next(iter(model.config.ends), tokenizer.end)
        if end is not None and end < tokenizer.vocab_size:
            about["eos_token"] = tokenizer.token(end)
        texts |= {"tokenizer.json": tokenizer.to_json(), "tokenizer_config.json": _json(about)}
    return texts


def _has_tokenizer(directory: Path, tokenizer: Tokenizer) -> bool:
    """Does the directory have this tokenizer? Then its files are kept, with what else they hold (a chat template)."""
    if not (directory / "tokenizer.json").is_file() or not (directory / "tokenizer_config.json").is_file():
        return False
    try:
        return Tokenizer.load(directory) == tokenizer
    except ValueError:
        return False


def _json(content: object) -> str:
    return json.dumps(content, indent=2) + "\n"

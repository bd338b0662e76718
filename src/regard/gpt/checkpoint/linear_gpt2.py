"""GPT-2 as minGPT and nanoGPT store it: names as in transformers, but weights as nn.Linear has them, (out, in).

The shape of the joined projection says which it is, (3 · E, E) or (E, 3 · E). nanoGPT's models may have no biases, and
names that torch.compile has prefixed. What the files do not say is which GELU a model was trained with: minGPT has the
tanh form and nanoGPT the exact one, so config.json must say it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.gpt.checkpoint.stored_tensors import NOTHING_LOADED, StoredTensor
from regard.gpt.checkpoint.weight_names import LAYOUTS, Place
from regard.gpt.config import GPTConfig

COMPILED = "_orig_mod."  # what torch.compile puts before every name
JOINED = "h.0.attn.c_attn"


def without_compiled_prefix(tensors: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    """The tensors by their names before torch.compile."""
    if not all(name.startswith(COMPILED) for name in tensors):
        return dict(tensors)
    return {name.removeprefix(COMPILED): tensor for name, tensor in tensors.items()}


def is_linear(config: GPTConfig, tensors: Mapping[str, StoredTensor]) -> bool:
    """Are the weights of this GPT-2 stored as nn.Linear has them?"""
    joined = _find(f"{JOINED}.weight", tensors)
    return joined is not None and joined.stored.shape == (3 * config.d_model, config.d_model)


def linear_config(
    config: GPTConfig, content: Mapping[str, Any], tensors: Mapping[str, StoredTensor], where: Path
) -> GPTConfig:
    """The config, without biases where the file has none; refused where config.json does not say which GELU it is."""
    if "activation_function" not in content:
        raise ValueError(
            f"{where}: weights are stored as nn.Linear has them, (out, in), so minGPT or nanoGPT wrote them and not "
            'transformers; config.json must then say which GELU they were trained with: "activation_function": '
            f'"gelu_new" for minGPT, "gelu" for nanoGPT. {NOTHING_LOADED}'
        )
    has_bias = _find(f"{JOINED}.bias", tensors) is not None
    return config if has_bias else config.with_(qkv_bias=False, bias=False)


def linear_places(places: Mapping[str, Place]) -> dict[str, Place]:
    """The places of GPT-2's weights where none is transposed.

    >>> from regard.gpt.checkpoint.weight_names import places_in_file
    >>> places = linear_places(places_in_file(GPTConfig.preset("gpt2-small"), "gpt2"))
    >>> places["blocks.3.attention.W_key.weight"]
    Place(name='h.3.attn.c_attn.weight', shape=(2304, 768), transposed=False, part=(768, 1536), axis=0)
    """
    return {
        name: place._replace(shape=place.shape[::-1], transposed=False, axis=0) if place.transposed else place
        for name, place in places.items()
    }


def _find(name: str, tensors: Mapping[str, StoredTensor]) -> StoredTensor | None:
    return tensors.get(LAYOUTS["gpt2"].prefix + name, tensors.get(name))

"""The names of a model's weights in transformers' files, and ours.

GPT-2 stores weights as (in, out), with queries, keys and values concatenated in one tensor. Llama, Mistral and Qwen
store them as nn.Linear does, one tensor each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from regard.gpt.activations import ACTIVATIONS
from regard.gpt.config import GPTConfig

# The prefix of all names but the head's, in files that hold the head too.
PREFIX = {
    "gpt2": "transformer.",
    "llama": "model.",
    "mistral": "model.",
    "qwen2": "model.",
    "qwen3": "model.",
    "regard": "",
}
# Buffers in old files: masks and rotary frequencies, which are computed here.
BUFFERS = (".attn.bias", ".attn.masked_bias", "rotary_emb.inv_freq")
HEAD = "lm_head.weight"


class Place(NamedTuple):
    """Where one of our weights is in a file: the tensor's name and shape there, whether it is transposed, and which part."""

    name: str
    shape: tuple[int, ...]
    transposed: bool = False
    part: tuple[int, int] | None = None  # from, to, on the last axis


def places_in_file(config: GPTConfig, kind: str) -> dict[str, Place]:
    """Our name of each weight → its place in a file of this model_type, named without prefix.

    >>> config = GPTConfig.preset("gpt2-small")
    >>> places_in_file(config, "gpt2")["blocks.3.attention.W_key.weight"]
    Place(name='h.3.attn.c_attn.weight', shape=(768, 2304), transposed=True, part=(768, 1536))
    """
    return dict(_in_gpt2(config) if kind == "gpt2" else _in_llama(config) if kind != "regard" else _in_regard(config))


def count_weights(config: GPTConfig, kind: str) -> int:
    """How many weights `places_in_file` has, found without listing those of all layers.

    >>> config = GPTConfig.preset("gpt2-small")
    >>> count_weights(config, "gpt2") == len(places_in_file(config, "gpt2"))
    True
    """
    one, two = (len(places_in_file(config.with_(num_layers=n), kind)) for n in (1, 2))
    return one + (config.num_layers - 1) * (two - one)


def prefixed(name: str, prefix: str) -> str:
    """A name with the prefix of its file; the head has none."""
    return name if name == HEAD else prefix + name


def _linear(ours: str, theirs: str, shape: tuple[int, int], bias: bool) -> Iterator[tuple[str, Place]]:
    yield f"{ours}.weight", Place(f"{theirs}.weight", shape)
    if bias:
        yield f"{ours}.bias", Place(f"{theirs}.bias", shape[:1])


def _in_gpt2(c: GPTConfig) -> Iterator[tuple[str, Place]]:
    E, inner = c.d_model, c.inner

    def conv(ours: str, theirs: str, shape: tuple[int, int]) -> Iterator[tuple[str, Place]]:
        yield f"{ours}.weight", Place(f"{theirs}.weight", shape, transposed=True)
        yield f"{ours}.bias", Place(f"{theirs}.bias", shape[1:])

    def norm(ours: str, theirs: str) -> Iterator[tuple[str, Place]]:
        yield f"{ours}.weight", Place(f"{theirs}.weight", (E,))
        yield f"{ours}.bias", Place(f"{theirs}.bias", (E,))

    yield "token_embedding.weight", Place("wte.weight", (c.vocab_size, E))
    yield "position_embedding.weight", Place("wpe.weight", (c.context_length, E))
    for i in range(c.num_layers):
        ours, theirs = f"blocks.{i}", f"h.{i}"
        yield from norm(f"{ours}.attention_norm", f"{theirs}.ln_1")
        for n, name in enumerate(("W_query", "W_key", "W_value")):
            part, joined = (n * E, n * E + E), f"{theirs}.attn.c_attn"
            yield f"{ours}.attention.{name}.weight", Place(f"{joined}.weight", (E, 3 * E), True, part)
            yield f"{ours}.attention.{name}.bias", Place(f"{joined}.bias", (3 * E,), False, part)
        yield from conv(f"{ours}.attention.out_proj", f"{theirs}.attn.c_proj", (E, E))
        yield from norm(f"{ours}.feed_forward_norm", f"{theirs}.ln_2")
        yield from conv(f"{ours}.feed_forward.up", f"{theirs}.mlp.c_fc", (E, inner))
        yield from conv(f"{ours}.feed_forward.down", f"{theirs}.mlp.c_proj", (inner, E))
    yield from norm("final_norm", "ln_f")
    if not c.tied:
        yield "head.weight", Place(HEAD, (c.vocab_size, E))


def _in_llama(c: GPTConfig) -> Iterator[tuple[str, Place]]:
    E, D, inner, kv = c.d_model, c.head_dim, c.inner, c.kv_heads * c.head_dim
    yield "token_embedding.weight", Place("embed_tokens.weight", (c.vocab_size, E))
    for i in range(c.num_layers):
        block, attention = f"blocks.{i}", f"blocks.{i}.attention"
        theirs, attn, mlp = f"layers.{i}", f"layers.{i}.self_attn", f"layers.{i}.mlp"
        yield f"{block}.attention_norm.weight", Place(f"{theirs}.input_layernorm.weight", (E,))
        yield from _linear(f"{attention}.W_query", f"{attn}.q_proj", (E, E), c.qkv_bias)
        yield from _linear(f"{attention}.W_key", f"{attn}.k_proj", (kv, E), c.qkv_bias)
        yield from _linear(f"{attention}.W_value", f"{attn}.v_proj", (kv, E), c.qkv_bias)
        yield from _linear(f"{attention}.out_proj", f"{attn}.o_proj", (E, E), c.bias)
        if c.qk_norm:
            yield f"{attention}.q_norm.weight", Place(f"{attn}.q_norm.weight", (D,))
            yield f"{attention}.k_norm.weight", Place(f"{attn}.k_norm.weight", (D,))
        yield f"{block}.feed_forward_norm.weight", Place(f"{theirs}.post_attention_layernorm.weight", (E,))
        yield from _linear(f"{block}.feed_forward.gate", f"{mlp}.gate_proj", (inner, E), c.bias)
        yield from _linear(f"{block}.feed_forward.up", f"{mlp}.up_proj", (inner, E), c.bias)
        yield from _linear(f"{block}.feed_forward.down", f"{mlp}.down_proj", (E, inner), c.bias)
    yield "final_norm.weight", Place("norm.weight", (E,))
    if not c.tied:
        yield "head.weight", Place(HEAD, (c.vocab_size, E))


def _in_regard(c: GPTConfig) -> Iterator[tuple[str, Place]]:
    """Our own names: those of GPT's state dict, found without building a model."""
    E, inner, kv = c.d_model, c.inner, c.kv_heads * c.head_dim
    gated = ACTIVATIONS[c.feed_forward].gated

    def norm(name: str) -> Iterator[tuple[str, Place]]:
        yield f"{name}.weight", Place(f"{name}.weight", (E,))
        if c.bias and c.norm == "layer":
            yield f"{name}.bias", Place(f"{name}.bias", (E,))

    def linear(name: str, outputs: int, inputs: int, bias: bool) -> Iterator[tuple[str, Place]]:
        return _linear(name, name, (outputs, inputs), bias)

    yield "token_embedding.weight", Place("token_embedding.weight", (c.vocab_size, E))
    if c.rotary is None:
        yield "position_embedding.weight", Place("position_embedding.weight", (c.context_length, E))
    for i in range(c.num_layers):
        block = f"blocks.{i}"
        attention, feed_forward = f"{block}.attention", f"{block}.feed_forward"
        yield from norm(f"{block}.attention_norm")
        yield from linear(f"{attention}.W_query", E, E, c.qkv_bias)
        yield from linear(f"{attention}.W_key", kv, E, c.qkv_bias)
        yield from linear(f"{attention}.W_value", kv, E, c.qkv_bias)
        yield from linear(f"{attention}.out_proj", E, E, c.bias)
        if c.qk_norm:
            for name in (f"{attention}.q_norm.weight", f"{attention}.k_norm.weight"):
                yield name, Place(name, (c.head_dim,))
        yield from norm(f"{block}.feed_forward_norm")
        if gated:
            yield from linear(f"{feed_forward}.gate", inner, E, c.bias)
        yield from linear(f"{feed_forward}.up", inner, E, c.bias)
        yield from linear(f"{feed_forward}.down", E, inner, c.bias)
    yield from norm("final_norm")
    if not c.tied:
        yield "head.weight", Place("head.weight", (c.vocab_size, E))

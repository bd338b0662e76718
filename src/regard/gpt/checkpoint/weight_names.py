"""The names of a model's weights in transformers' files, and ours.

GPT-2 stores weights as (in, out), with queries, keys and values concatenated in one tensor. Llama, Mistral and Qwen
store them as nn.Linear does, one tensor each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from regard.gpt.activations import ACTIVATIONS
from regard.gpt.config import GPTConfig

# Buffers in old files: masks and rotary frequencies, which are computed here.
BUFFERS = (".attn.bias", ".attn.masked_bias", "rotary_emb.inv_freq")
HEAD = "lm_head.weight"


class Place(NamedTuple):
    """Where one of our weights is in a file: the tensor's name and shape there, if it is transposed, and which part."""

    name: str
    shape: tuple[int, ...]
    transposed: bool = False
    part: tuple[int, int] | None = None  # from, to, on the axis
    axis: int = -1


def places_in_file(config: GPTConfig, kind: str) -> dict[str, Place]:
    """Our name of each weight → its place in a file of this model_type, named without prefix.

    >>> config = GPTConfig.preset("gpt2-small")
    >>> places_in_file(config, "gpt2")["blocks.3.attention.W_key.weight"]
    Place(name='h.3.attn.c_attn.weight', shape=(768, 2304), transposed=True, part=(768, 1536), axis=-1)
    """
    return dict(LAYOUTS[kind].places(config))


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


def _shapes(c: GPTConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The weights of GPT's state dict and their shapes, found without building a model."""
    E, inner, kv = c.d_model, c.inner, c.kv_heads * c.head_dim

    def norm(name: str) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield f"{name}.weight", (E,)
        if c.bias and c.norm == "layer":
            yield f"{name}.bias", (E,)

    def linear(name: str, outputs: int, inputs: int, bias: bool = c.bias) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield f"{name}.weight", (outputs, inputs)
        if bias:
            yield f"{name}.bias", (outputs,)

    yield "token_embedding.weight", (c.vocab_size, E)
    if c.rotary is None:
        yield "position_embedding.weight", (c.context_length, E)
    for block in (f"blocks.{i}" for i in range(c.num_layers)):
        attention, feed_forward = f"{block}.attention", f"{block}.feed_forward"
        yield from norm(f"{block}.attention_norm")
        for name, width in (("W_query", E), ("W_key", kv), ("W_value", kv)):
            yield from linear(f"{attention}.{name}", width, E, c.qkv_bias)
        yield from linear(f"{attention}.out_proj", E, E)
        if c.qk_norm:
            yield from ((f"{attention}.{name}.weight", (c.head_dim,)) for name in ("q_norm", "k_norm"))
        yield from norm(f"{block}.feed_forward_norm")
        if ACTIVATIONS[c.feed_forward].gated:
            yield from linear(f"{feed_forward}.gate", inner, E)
        yield from linear(f"{feed_forward}.up", inner, E)
        yield from linear(f"{feed_forward}.down", E, inner)
    yield from norm("final_norm")
    if not c.tied:
        yield "head.weight", (c.vocab_size, E)


def _pairs(text: str) -> dict[str, str]:
    return dict(pair.split(":") for pair in text.split())


# The parts of our names, and theirs.
GPT2_NAMES = _pairs("""
    token_embedding:wte position_embedding:wpe blocks:h attention_norm:ln_1 feed_forward_norm:ln_2 final_norm:ln_f
    attention:attn W_query:c_attn W_key:c_attn W_value:c_attn out_proj:c_proj
    feed_forward:mlp up:c_fc down:c_proj head:lm_head
""")
LLAMA_NAMES = _pairs("""
    token_embedding:embed_tokens blocks:layers attention_norm:input_layernorm
    feed_forward_norm:post_attention_layernorm final_norm:norm
    attention:self_attn W_query:q_proj W_key:k_proj W_value:v_proj out_proj:o_proj
    feed_forward:mlp gate:gate_proj up:up_proj down:down_proj head:lm_head
""")
QKV = ("W_query", "W_key", "W_value")


@dataclass(frozen=True)
class Layout:
    """How the files of a model_type name and store weights.

    prefix: of all names but the head's, in files that hold the head too.
    names: what the parts of our names are called there.
    joined: GPT-2's way: weights are (in, out), with queries, keys and values concatenated in one tensor.
    """

    prefix: str
    names: Mapping[str, str]
    joined: bool = False

    def places(self, config: GPTConfig) -> Iterator[tuple[str, Place]]:
        """The places of a model's weights."""
        E = config.d_model
        for ours, shape in _shapes(config):
            parts = ours.split(".")
            theirs = ".".join(self.names.get(part, part) for part in parts)
            if not self.joined or parts[0] != "blocks":
                yield ours, Place(theirs, shape)
                continue
            part = None
            if parts[-2] in QKV:
                first = QKV.index(parts[-2]) * E
                part, shape = (first, first + E), (3 * E, *shape[1:])
            yield ours, Place(theirs, shape[::-1], transposed=len(shape) == 2, part=part)


LAYOUTS = {
    "gpt2": Layout("transformer.", GPT2_NAMES, joined=True),
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3"), Layout("model.", LLAMA_NAMES)),
    "regard": Layout("", {}),
}

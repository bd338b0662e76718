"""The names of a model's weights in transformers' files, and ours.

GPT-2 stores weights as (in, out), with queries, keys and values concatenated in one tensor. minGPT and nanoGPT use its
names, but store weights as nn.Linear does, (out, in). So do Llama, Mistral and Qwen, one tensor each.
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
    part: tuple[int, int] | None = None  # from, to: of our rows, which are columns there if it is transposed


def prefixed(name: str, prefix: str) -> str:
    """A name with the prefix of its file; the head has none."""
    return name if name == HEAD else prefix + name


def _shapes(c: GPTConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The weights of GPT's state dict and their shapes, found without building a model."""
    E, inner, kv = c.d_model, c.inner, c.kv_heads * c.head_dim
    norm_bias = c.bias and c.norm == "layer"
    # Name, shape of the weight, is there a bias, is there such a layer?
    block: list[tuple[str, tuple[int, ...], bool, bool]] = [
        ("attention_norm", (E,), norm_bias, True),
        ("attention.W_query", (E, E), c.qkv_bias, True),
        ("attention.W_key", (kv, E), c.qkv_bias, True),
        ("attention.W_value", (kv, E), c.qkv_bias, True),
        ("attention.out_proj", (E, E), c.bias, True),
        ("attention.q_norm", (c.head_dim,), False, c.qk_norm),
        ("attention.k_norm", (c.head_dim,), False, c.qk_norm),
        ("feed_forward_norm", (E,), norm_bias, True),
        ("feed_forward.gate", (inner, E), c.bias, ACTIVATIONS[c.feed_forward].gated),
        ("feed_forward.up", (inner, E), c.bias, True),
        ("feed_forward.down", (E, inner), c.bias, True),
    ]
    layers = [
        ("token_embedding", (c.vocab_size, E), False, True),
        ("position_embedding", (c.context_length, E), False, c.rotary is None),
        *((f"blocks.{i}.{layer[0]}", *layer[1:]) for i in range(c.num_layers) for layer in block),
        ("final_norm", (E,), norm_bias, True),
        ("head", (c.vocab_size, E), False, not c.tied),
    ]
    for name, shape, has_bias, exists in layers:
        if exists:
            yield f"{name}.weight", shape
        if exists and has_bias:
            yield f"{name}.bias", shape[:1]


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
    joined: queries, keys and values are concatenated in one tensor.
    transposed: the matrices of the blocks are (in, out).
    """

    prefix: str
    names: Mapping[str, str]
    joined: bool = False
    transposed: bool = False


LAYOUTS = {
    "gpt2": Layout("transformer.", GPT2_NAMES, joined=True, transposed=True),
    "linear gpt2": Layout("transformer.", GPT2_NAMES, joined=True),  # minGPT and nanoGPT
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3"), Layout("model.", LLAMA_NAMES)),
    "regard": Layout("", {}),
}


def places_in_file(config: GPTConfig, kind: str) -> dict[str, Place]:
    """Our name of each weight → its place in a file of this model_type, named without prefix.

    >>> config = GPTConfig.preset("gpt2-small")
    >>> places_in_file(config, "gpt2")["blocks.3.attention.W_key.weight"]
    Place(name='h.3.attn.c_attn.weight', shape=(768, 2304), transposed=True, part=(768, 1536))
    >>> places_in_file(config, "linear gpt2")["blocks.3.attention.W_key.weight"]
    Place(name='h.3.attn.c_attn.weight', shape=(2304, 768), transposed=False, part=(768, 1536))
    """
    layout, E, places = LAYOUTS[kind], config.d_model, {}
    for ours, shape in _shapes(config):
        names = ours.split(".")
        theirs, part = ".".join(layout.names.get(name, name) for name in names), None
        if layout.joined and names[-2] in QKV:
            first = QKV.index(names[-2]) * E
            part, shape = (first, first + E), (3 * E, *shape[1:])
        is_transposed = layout.transposed and names[0] == "blocks" and len(shape) == 2
        places[ours] = Place(theirs, shape[::-1] if is_transposed else shape, is_transposed, part)
    return places

"""The table of model families: config.json of transformers to GPTConfig, and back.

A setting that would change the results and is not supported is refused by name: a model that loads gives the same
results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from regard.attention.positions import Rotary, Stretch
from regard.gpt.checkpoint.typed_json import ConfigReader, typed
from regard.gpt.config import GPTConfig

# transformers' names for the feed-forwards that its GPT-2 can have.
GPT2_ACTIVATIONS = {"gelu_new": "gelu", "gelu_pytorch_tanh": "gelu", "gelu": "gelu_exact"}
# Sizes by their names in config.json, and ours.
GPT2_SIZES = {"n_positions": "context_length", "n_embd": "d_model", "n_layer": "num_layers", "n_head": "num_heads"}
LLAMA_SIZES = {
    "max_position_embeddings": "context_length",
    "hidden_size": "d_model",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "intermediate_size": "d_ff",
}


@dataclass(frozen=True)
class Family:
    """A model_type of config.json. Its weights are named in weight_names.LAYOUTS.

    architecture: the class of transformers.
    fits: does that class compute a model of this config?
    read: the fields of GPTConfig from a config.json; what is not supported is refused.
    write: what a config.json holds beside model_type and architectures.
    """

    architecture: str
    fits: Callable[[GPTConfig], bool]
    read: Callable[[ConfigReader], dict[str, Any]]
    write: Callable[[GPTConfig], dict[str, Any]]


def model_type_of(config: GPTConfig) -> str:
    """The model_type of transformers that computes this model; "regard" if there is none.

    >>> model_type_of(GPTConfig.preset("tiny")), model_type_of(GPTConfig.preset("tiny", rotary=Rotary()))
    ('gpt2', 'regard')
    """
    return next(kind for kind, family in FAMILIES.items() if family.fits(config))


def config_to_transformers(config: GPTConfig) -> dict[str, Any]:
    """The content of config.json for a model.

    >>> content = config_to_transformers(GPTConfig.preset("gpt2-small"))
    >>> content["model_type"], content["n_embd"], content["architectures"]
    ('gpt2', 768, ['GPT2LMHeadModel'])

    A model that transformers has no class for has model_type "regard" and our own fields; transformers refuses it.
    """
    kind = model_type_of(config)
    family = FAMILIES[kind]
    return {"model_type": kind, "architectures": [family.architecture], **family.write(config)}


def config_from_transformers(content: Mapping[str, Any], where: str = "config.json") -> GPTConfig:
    """The config of a model from the content of its config.json.

    >>> content = config_to_transformers(GPTConfig.preset("gpt2-small"))
    >>> config_from_transformers(content) == GPTConfig.preset("gpt2-small")
    True

    A setting that would change the results and is not supported is refused by name. `end` is all of its eos_token_ids
    that are in the vocabulary.
    """
    reader = ConfigReader(content, where)
    kind = reader.one_of("model_type", tuple(FAMILIES), None, "these are the kinds that can be loaded")
    try:
        return GPTConfig(**FAMILIES[kind].read(reader))
    except ValueError as error:
        if str(error).startswith(where):
            raise
        raise ValueError(f"{where}: {error}. Nothing was loaded.") from error


def _is_gpt2(c: GPTConfig) -> bool:
    plain = c.norm == "layer" and c.feed_forward in GPT2_ACTIVATIONS.values() and c.qkv_bias and c.bias
    return plain and c.rotary is None and c.kv_heads == c.num_heads and c.window is None and not c.qk_norm


def _read_gpt2(reader: ConfigReader) -> dict[str, Any]:
    activation = reader.one_of("activation_function", tuple(GPT2_ACTIVATIONS), "gelu_new", "a GELU, exact or by tanh")
    reader.one_of("scale_attn_weights", (True,), True, "scores are always divided by √head_dim")
    reader.one_of("scale_attn_by_inverse_layer_idx", (False,), False, "scores are scaled alike in all layers")
    reader.one_of("reorder_and_upcast_attn", (False,), False, "attention is computed in the dtype of the weights")
    reader.one_of("add_cross_attention", (False,), False, "cross-attention is not supported")
    return {
        **reader.sizes(GPT2_SIZES),
        "d_ff": None if reader.content.get("n_inner") is None else reader.integer("n_inner"),
        "feed_forward": GPT2_ACTIVATIONS[activation],
        "norm_eps": reader.number("layer_norm_epsilon", 1e-5),
        "dropout": reader.dropout("resid_pdrop", "embd_pdrop", "attn_pdrop", default=0.1),
        **_read_vocabulary(reader, tied=True, end=50256),
    }


def _write_gpt2(c: GPTConfig) -> dict[str, Any]:
    return {
        **_write_vocabulary(c),
        **{theirs: getattr(c, ours) for theirs, ours in GPT2_SIZES.items()},
        "bos_token_id": next(iter(c.ends), None),
        "n_inner": c.d_ff,
        "activation_function": next(k for k, v in GPT2_ACTIVATIONS.items() if v == c.feed_forward),
        "layer_norm_epsilon": c.norm_eps,
        "attn_pdrop": c.dropout,
    }


def _read_vocabulary(reader: ConfigReader, tied: bool, end: int | None) -> dict[str, Any]:
    """What all families of transformers have in common, with their defaults for a tied head and the end of text."""
    reader.one_of("quantization_config", (None,), None, "only weights that are not quantised can be loaded")
    size = reader.integer("vocab_size")
    return {"vocab_size": size, "tied": reader.flag("tie_word_embeddings", tied), "end": reader.end(end, size)}


def _write_vocabulary(c: GPTConfig) -> dict[str, Any]:
    # transformers' Llama has only attention_dropout; the other two are ours, so that the config survives a round trip.
    content = {"vocab_size": c.vocab_size, "tie_word_embeddings": c.tied, "bos_token_id": None, "pad_token_id": None}
    end = list(c.end) if isinstance(c.end, tuple) else c.end
    return content | {"eos_token_id": end, "resid_pdrop": c.dropout, "embd_pdrop": c.dropout}


def _is_llama(c: GPTConfig, **same: object) -> bool:
    """Is it a model of the Llama family, and has these fields?"""
    is_rms = c.norm == "rms" and c.feed_forward == "swiglu" and c.rotary is not None and not c.rotary.interleaved
    return is_rms and all(getattr(c, name) == value for name, value in same.items())


def _read_llama_family(
    reader: ConfigReader, window: int | None, end: int | None = None, head_dim: int | None = None
) -> dict[str, Any]:
    """What Llama, Mistral and Qwen have in common. end, head_dim: the defaults of transformers."""
    sizes = reader.sizes(LLAMA_SIZES)
    width, heads, kind = sizes["d_model"], sizes["num_heads"], reader.content["model_type"]
    if reader.content.get("head_dim", head_dim) is not None and reader.integer("head_dim", 128) * heads != width:
        reader.refuse("head_dim", f"times num_attention_heads ({heads}) it must be hidden_size ({width})")
    reader.one_of("hidden_act", ("silu", "swish"), "silu", "the gate of the feed-forward")
    bias, mlp_bias = reader.flag("attention_bias", False), reader.flag("mlp_bias", False)
    if kind != "llama" and (bias or mlp_bias):
        reader.refuse("attention_bias" if bias else "mlp_bias", f"{kind} is loaded without such biases")
    if bias != mlp_bias:
        rule = f"mlp_bias ({mlp_bias}) must be the same: all linear layers have a bias, or none"
        reader.refuse("attention_bias", rule)
    _sliding_window(reader)  # it must be valid also in a Llama, where transformers ignores it
    _check_layer_types(reader, sizes["num_layers"], window)
    return sizes | {
        "num_kv_heads": _kv_heads(reader, heads, required=kind != "llama"),
        "dropout": reader.dropout("attention_dropout", "resid_pdrop", "embd_pdrop", default=0.0),
        "rotary": _rotary(reader),
        "window": window,
        "norm": "rms",
        "norm_eps": reader.number("rms_norm_eps", 1e-6),
        "feed_forward": "swiglu",
        "qkv_bias": bias,
        "bias": bias,
        **_read_vocabulary(reader, tied=False, end=end),
    }


def _write_llama_family(c: GPTConfig, **more: Any) -> dict[str, Any]:
    return {
        **_write_vocabulary(c),
        **{theirs: getattr(c, ours) for theirs, ours in LLAMA_SIZES.items()},
        "intermediate_size": c.inner,
        "num_key_value_heads": c.kv_heads,
        "head_dim": c.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": c.norm_eps,
        "attention_dropout": c.dropout,
        **_rope_of(c),
        **more,
    }


def _read_qwen3(reader: ConfigReader) -> dict[str, Any]:
    if reader.number("rms_norm_eps", 1e-6) != 1e-6:
        reader.refuse("rms_norm_eps", "norms of queries and keys have 1e-06 here")
    return _read_llama_family(reader, _qwen_window(reader), head_dim=128) | {"qk_norm": True}


def _write_qwen(c: GPTConfig) -> dict[str, Any]:
    types = [_layer_type(c.window)] * c.num_layers
    slides = {"use_sliding_window": c.window is not None, "max_window_layers": 0, "layer_types": types}
    return _write_llama_family(c, sliding_window=c.window, **slides)


def _kv_heads(reader: ConfigReader, heads: int, required: bool) -> int | None:
    if reader.content.get("num_key_value_heads") is None and (not required or "num_key_value_heads" in reader.content):
        return None
    number = reader.integer("num_key_value_heads")
    if heads % number:
        reader.refuse("num_key_value_heads", f"num_attention_heads ({heads}) must be divisible by it")
    return None if number == heads else number


def _layer_type(window: int | None) -> str:
    return "full_attention" if window is None else "sliding_attention"


def _check_layer_types(reader: ConfigReader, layers: int, window: int | None) -> None:
    """Models whose layers differ are refused."""
    types = reader.content.get("layer_types")
    if types is not None and not isinstance(types, list):
        reader.refuse("layer_types", "it must be a list")
    if types is not None and (len(types) != layers or any(one != _layer_type(window) for one in types)):
        reader.refuse("layer_types", f"all {layers} layers must be {_layer_type(window)} in this model")


def _sliding_window(reader: ConfigReader) -> int | None:
    is_off = reader.content.get("sliding_window", 4096) is None  # 4096 is the default of transformers
    return None if is_off else reader.integer("sliding_window", 4096)


def _qwen_window(reader: ConfigReader) -> int | None:
    """The sliding window; None where layer_types or max_window_layers gives all layers full attention."""
    window, layers = _sliding_window(reader), reader.integer("num_hidden_layers")
    if not reader.flag("use_sliding_window", False) or window is None:
        return None
    types = reader.content.get("layer_types")
    first = max(0, min(layers, reader.number("max_window_layers", 28.0)))  # these layers have full attention
    if isinstance(types, list):
        return window if "sliding_attention" in types else None
    if 0 < first < layers:
        reader.refuse("max_window_layers", f"all {layers} layers must have the same window: 0 or {layers} of them")
    return window if first == 0 else None


def _rotary(reader: ConfigReader) -> Rotary:
    """transformers 5 writes rope_parameters; earlier versions wrote rope_theta and rope_scaling."""
    content = reader.table("rope_scaling") or reader.table("rope_parameters")
    rope = ConfigReader(content, f"{reader.where}: rope_parameters")
    for table in (rope, reader):
        if table.number("partial_rotary_factor", 1.0) != 1:
            table.refuse("partial_rotary_factor", "it must be 1: all channels of a head are rotated")
    kinds, named = ("default", "linear", "llama3"), "rope_type" if "rope_type" in content else "type"
    kind = rope.one_of(named, kinds, "default", "other kinds of RoPE scaling are not supported")
    base = rope.number("rope_theta", reader.number("rope_theta", 10_000.0))
    if kind == "default":
        return Rotary(base)

    def factor_of(name: str) -> float:
        if name not in content:
            rope.refuse(name, f"{kind} needs one")
        return rope.number(name, 1.0)

    factor = factor_of("factor")
    if kind == "linear":
        return Rotary(base, stretch=Stretch(factor))
    key = "original_max_position_embeddings"
    longest = reader.content.get("max_position_embeddings")
    original = reader.integer(key) if key in reader.content else rope.integer(key, longest)
    low, high = factor_of("low_freq_factor"), factor_of("high_freq_factor")
    return Rotary(base, stretch=Stretch(factor, original, low, high))


def _rope_of(config: GPTConfig) -> dict[str, Any]:
    """Both spellings, for older and newer versions of transformers."""
    assert config.rotary is not None
    base, stretch = config.rotary.base, config.rotary.stretch
    if stretch is None:
        return {"rope_theta": base, "rope_parameters": {"rope_type": "default", "rope_theta": base}}
    scaling: dict[str, Any] = {"rope_type": "linear", "factor": stretch.factor}
    if stretch.original is not None:
        scaling |= {"rope_type": "llama3", "original_max_position_embeddings": stretch.original}
        scaling |= {"low_freq_factor": stretch.low, "high_freq_factor": stretch.high}
    return {"rope_theta": base, "rope_scaling": scaling, "rope_parameters": {**scaling, "rope_theta": base}}


def _read_regard(reader: ConfigReader) -> dict[str, Any]:
    others = ("model_type", "architectures", "dtype")
    return typed(GPTConfig, {name: value for name, value in reader.content.items() if name not in others}, reader.where)


FAMILIES = {
    "gpt2": Family("GPT2LMHeadModel", _is_gpt2, _read_gpt2, _write_gpt2),
    "llama": Family(
        "LlamaForCausalLM",
        lambda c: _is_llama(c, qk_norm=False, bias=c.qkv_bias, window=None),
        lambda reader: _read_llama_family(reader, None, end=2),
        lambda c: _write_llama_family(c, attention_bias=c.bias, mlp_bias=c.bias),
    ),
    "mistral": Family(
        "MistralForCausalLM",
        lambda c: _is_llama(c, qk_norm=False, qkv_bias=False, bias=False) and c.window is not None,
        lambda reader: _read_llama_family(reader, _sliding_window(reader), end=2),
        lambda c: _write_llama_family(c, sliding_window=c.window),
    ),
    "qwen2": Family(
        "Qwen2ForCausalLM",
        lambda c: _is_llama(c, qk_norm=False, qkv_bias=True, bias=False),
        lambda reader: _read_llama_family(reader, _qwen_window(reader)) | {"qkv_bias": True},
        _write_qwen,
    ),
    "qwen3": Family(
        "Qwen3ForCausalLM",
        lambda c: _is_llama(c, qk_norm=True, qkv_bias=False, bias=False, norm_eps=1e-6),
        _read_qwen3,
        _write_qwen,
    ),
    "regard": Family("GPT", lambda c: True, _read_regard, asdict),  # the last, which takes what no other does
}
KINDS = tuple(FAMILIES)

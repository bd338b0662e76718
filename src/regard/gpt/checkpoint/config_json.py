"""config.json of transformers to GPTConfig, and back.

A setting that would change the results and is not supported is refused by name: a model that loads gives the same
results.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from typing import Any, Literal, NoReturn, get_args, get_origin, get_type_hints

from regard.attention.positions import Rotary, Stretch
from regard.gpt.config import GPTConfig
from regard.support.printable import readable

KINDS = ("gpt2", "llama", "mistral", "qwen2", "qwen3", "regard")
CLASSES = {
    "gpt2": "GPT2LMHeadModel",
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "regard": "GPT",
}
LARGEST = 1 << 31  # no size of a model is as large
# Default end-of-text tokens of transformers.
ENDS = {"gpt2": 50256, "llama": 2, "mistral": 2}
# transformers' names for the feed-forwards that its GPT-2 can have.
GPT2_ACTIVATIONS = {"gelu_new": "gelu", "gelu_pytorch_tanh": "gelu", "gelu": "gelu_exact"}


def kind_of(config: GPTConfig) -> str:
    """The model_type of transformers that computes this model; "regard" if there is none.

    >>> kind_of(GPTConfig.preset("tiny")), kind_of(GPTConfig.preset("tiny", rotary=Rotary()))
    ('gpt2', 'regard')
    """
    c = config
    if c.rotary is None:
        plain = c.norm == "layer" and c.feed_forward in GPT2_ACTIVATIONS.values() and c.qkv_bias and c.bias
        return "gpt2" if plain and c.kv_heads == c.num_heads and c.window is None and not c.qk_norm else "regard"
    if c.norm != "rms" or c.feed_forward != "swiglu" or c.rotary.interleaved:
        return "regard"
    if c.qk_norm:
        return "qwen3" if not c.qkv_bias and not c.bias and c.norm_eps == 1e-6 else "regard"
    if c.qkv_bias and not c.bias:
        return "qwen2"
    if c.window is not None:
        return "mistral" if not c.qkv_bias and not c.bias else "regard"
    return "llama" if c.qkv_bias == c.bias else "regard"


def config_to_transformers(config: GPTConfig) -> dict[str, Any]:
    """The content of config.json for a model.

    >>> content = config_to_transformers(GPTConfig.preset("gpt2-small"))
    >>> content["model_type"], content["n_embd"], content["architectures"]
    ('gpt2', 768, ['GPT2LMHeadModel'])

    A model that transformers has no class for has model_type "regard" and our own fields; transformers refuses it.
    """
    kind, c = kind_of(config), config
    content: dict[str, Any] = {"model_type": kind, "architectures": [CLASSES[kind]]}
    if kind == "regard":
        return content | asdict(c)
    content |= {"vocab_size": c.vocab_size, "tie_word_embeddings": c.tied}
    first, end = next(iter(c.ends), None), list(c.end) if isinstance(c.end, tuple) else c.end
    content |= {"bos_token_id": first if kind == "gpt2" else None, "eos_token_id": end, "pad_token_id": None}
    # transformers' Llama has only attention_dropout; the other two are ours, so that the config survives a round trip.
    content |= {"resid_pdrop": c.dropout, "embd_pdrop": c.dropout}
    if kind == "gpt2":
        return content | {
            "n_positions": c.context_length,
            "n_embd": c.d_model,
            "n_layer": c.num_layers,
            "n_head": c.num_heads,
            "n_inner": c.d_ff,
            "activation_function": next(k for k, v in GPT2_ACTIVATIONS.items() if v == c.feed_forward),
            "layer_norm_epsilon": c.norm_eps,
            "attn_pdrop": c.dropout,
        }
    content |= {
        "max_position_embeddings": c.context_length,
        "hidden_size": c.d_model,
        "num_hidden_layers": c.num_layers,
        "num_attention_heads": c.num_heads,
        "num_key_value_heads": c.kv_heads,
        "head_dim": c.head_dim,
        "intermediate_size": c.inner,
        "hidden_act": "silu",
        "rms_norm_eps": c.norm_eps,
        "attention_dropout": c.dropout,
        **_rope_of(c),
    }
    if kind == "llama":
        content |= {"attention_bias": c.bias, "mlp_bias": c.bias}
    elif kind == "mistral":
        content |= {"sliding_window": c.window}
    else:
        content |= {"sliding_window": c.window, "use_sliding_window": c.window is not None, "max_window_layers": 0}
        content |= {"layer_types": [_layer_type(c.window)] * c.num_layers}
    return content


def config_from_transformers(content: Mapping[str, Any], where: str = "config.json") -> GPTConfig:
    """The config of a model from the content of its config.json.

    >>> content = config_to_transformers(GPTConfig.preset("gpt2-small"))
    >>> config_from_transformers(content) == GPTConfig.preset("gpt2-small")
    True

    A setting that would change the results and is not supported is refused by name. `end` is all of its eos_token_ids
    that are in the vocabulary.
    """
    reader = _ConfigReader(content, where)
    kind = reader.one_of("model_type", KINDS, None, "these are the kinds that can be loaded")
    try:
        if kind == "regard":
            return _regard_config(reader)
        sizes = _gpt2_config(reader) if kind == "gpt2" else _llama_config(reader, kind)
        reader.one_of("quantization_config", (None,), None, "only weights that are not quantised can be loaded")
        sizes |= {
            "vocab_size": reader.integer("vocab_size"),
            "tied": reader.flag("tie_word_embeddings", kind == "gpt2"),
        }
        return GPTConfig(**sizes, end=reader.end(ENDS.get(kind), sizes["vocab_size"]))
    except ValueError as error:
        if str(error).startswith(where):
            raise
        raise ValueError(f"{where}: {error}. Nothing was loaded.") from error


def end_from_transformers(
    content: Mapping[str, Any], config: GPTConfig, where: str = "generation_config.json"
) -> int | tuple[int, ...] | None:
    """The end-of-text tokens of generation_config.json, which takes precedence over config.json in transformers.

    >>> end_from_transformers({"eos_token_id": [7, 9]}, GPTConfig.preset("tiny"))
    (7, 9)
    """
    reader = _ConfigReader(content, where)
    return config.end if content.get("eos_token_id") is None else reader.end(None, config.vocab_size)


class _ConfigReader:
    """Reads values of an untrusted config.json by name and type; a wrong one is refused by name."""

    def __init__(self, content: Mapping[str, Any], where: str) -> None:
        self.content, self.where = content, where

    def refuse(self, key: str, why: str) -> NoReturn:
        value = readable(repr(self.content[key])) if key in self.content else "missing"
        raise ValueError(f"{self.where}: {readable(key)} is {value}; {why}. Nothing was loaded.")

    def one_of(self, key: str, allowed: tuple[Any, ...], default: Any, why: str) -> Any:
        value = self.content.get(key, default)
        if not any(type(value) is type(one) and value == one for one in allowed):
            known = ", ".join(map(repr, allowed))
            self.refuse(key, f"it must be {'one of ' * (len(allowed) > 1)}{known}: {why}")
        return value

    def integer(self, key: str, default: int | None = None) -> int:
        value = self.content.get(key, default)
        if type(value) is not int or not 1 <= value < LARGEST:
            self.refuse(key, "it must be a whole number of at least 1 and below 2³¹")
        return value

    def number(self, key: str, default: float) -> float:
        value = self.content.get(key, default)
        if type(value) not in (int, float) or not math.isfinite(value):
            self.refuse(key, "it must be a number")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self.content.get(key, default)
        if type(value) is not bool:
            self.refuse(key, "it must be true or false")
        return value

    def table(self, key: str) -> dict[str, Any]:
        value = self.content.get(key)
        if value is not None and not isinstance(value, dict):
            self.refuse(key, "it must be a JSON object")
        return value or {}

    def end(self, default: int | None, vocab_size: int) -> int | tuple[int, ...] | None:
        held = tuple(i for i in dict.fromkeys(self.ids("eos_token_id", default)) if 0 <= i < vocab_size)
        return held if len(held) > 1 else next(iter(held), None)

    def ids(self, key: str, default: int | None) -> tuple[int, ...]:
        value = self.content.get(key, default)
        ids = value if isinstance(value, list) else [] if value is None else [value]
        if not all(type(i) is int for i in ids):
            self.refuse(key, "it must be a token id, or a list of them")
        return tuple(ids)

    def dropout(self, *keys: str, default: float) -> float:
        values = {key: self.number(key, default) for key in keys}
        if len(set(values.values())) > 1:
            listed = ", ".join(f"{key} is {value}" for key, value in values.items())
            raise ValueError(
                f"{self.where}: {listed}; there is one dropout for all three here, so set them to the same value "
                "(they act in training only). Nothing was loaded."
            )
        return values[keys[0]]


def _gpt2_config(reader: _ConfigReader) -> dict[str, Any]:
    activation = reader.one_of("activation_function", tuple(GPT2_ACTIVATIONS), "gelu_new", "a GELU, exact or by tanh")
    reader.one_of("scale_attn_weights", (True,), True, "scores are always divided by √head_dim")
    reader.one_of("scale_attn_by_inverse_layer_idx", (False,), False, "scores are scaled alike in all layers")
    reader.one_of("reorder_and_upcast_attn", (False,), False, "attention is computed in the dtype of the weights")
    reader.one_of("add_cross_attention", (False,), False, "cross-attention is not supported")
    return {
        "context_length": reader.integer("n_positions"),
        "num_layers": reader.integer("n_layer"),
        "d_model": reader.integer("n_embd"),
        "num_heads": reader.integer("n_head"),
        "d_ff": None if reader.content.get("n_inner") is None else reader.integer("n_inner"),
        "feed_forward": GPT2_ACTIVATIONS[activation],
        "norm_eps": reader.number("layer_norm_epsilon", 1e-5),
        "dropout": reader.dropout("resid_pdrop", "embd_pdrop", "attn_pdrop", default=0.1),
    }


def _llama_config(reader: _ConfigReader, kind: str) -> dict[str, Any]:
    layers, width, heads = (reader.integer(k) for k in ("num_hidden_layers", "hidden_size", "num_attention_heads"))
    head_dim = reader.content.get("head_dim", 128 if kind == "qwen3" else None)  # as transformers fills it in
    if head_dim is not None and reader.integer("head_dim", 128) * heads != width:
        reader.refuse("head_dim", f"times num_attention_heads ({heads}) it must be hidden_size ({width})")
    reader.one_of("hidden_act", ("silu", "swish"), "silu", "the gate of the feed-forward")
    attention_bias, mlp_bias = reader.flag("attention_bias", False), reader.flag("mlp_bias", False)
    if kind == "llama" and attention_bias != mlp_bias:
        reader.refuse(
            "attention_bias", f"mlp_bias ({mlp_bias}) must be the same: all linear layers have a bias, or none"
        )
    if kind != "llama" and (attention_bias or mlp_bias):
        reader.refuse("attention_bias" if attention_bias else "mlp_bias", f"{kind} is loaded without such biases")
    eps = reader.number("rms_norm_eps", 1e-6)
    if kind == "qwen3" and eps != 1e-6:
        reader.refuse("rms_norm_eps", "norms of queries and keys have 1e-06 here")
    return {
        "context_length": reader.integer("max_position_embeddings"),
        "num_layers": layers,
        "d_model": width,
        "num_heads": heads,
        "num_kv_heads": _kv_heads(reader, kind, heads),
        "d_ff": reader.integer("intermediate_size"),
        "dropout": reader.dropout("attention_dropout", "resid_pdrop", "embd_pdrop", default=0.0),
        "rotary": _rotary(reader),
        "window": _window(reader, kind, layers),
        "qk_norm": kind == "qwen3",
        "norm": "rms",
        "norm_eps": eps,
        "feed_forward": "swiglu",
        "qkv_bias": kind == "qwen2" or attention_bias,
        "bias": mlp_bias,
    }


def _kv_heads(reader: _ConfigReader, kind: str, heads: int) -> int | None:
    if reader.content.get("num_key_value_heads") is None and (
        kind == "llama" or "num_key_value_heads" in reader.content
    ):
        return None
    number = reader.integer("num_key_value_heads")
    if heads % number:
        reader.refuse("num_key_value_heads", f"num_attention_heads ({heads}) must be divisible by it")
    return None if number == heads else number


def _layer_type(window: int | None) -> str:
    return "full_attention" if window is None else "sliding_attention"


def _window(reader: _ConfigReader, kind: str, layers: int) -> int | None:
    """The sliding window of all layers, or None. Models whose layers differ are refused."""
    # 4096 is the default of transformers.
    window = reader.integer("sliding_window", 4096) if reader.content.get("sliding_window", 4096) is not None else None
    types = reader.content.get("layer_types")
    if types is not None and not isinstance(types, list):
        reader.refuse("layer_types", "it must be a list")
    if kind == "llama":
        window = None  # transformers' Llama ignores it
    elif kind != "mistral":
        window = window if reader.flag("use_sliding_window", False) else None
        # Qwen's first max_window_layers layers have full attention.
        first = layers if window is None else max(0, min(layers, reader.number("max_window_layers", 28.0)))
        if types is None and 0 < first < layers:
            reader.refuse("max_window_layers", f"all {layers} layers must have the same window: 0 or {layers} of them")
        slides = first == 0 if types is None else "sliding_attention" in types
        window = window if slides else None
    if types is not None and (len(types) != layers or any(one != _layer_type(window) for one in types)):
        reader.refuse("layer_types", f"all {layers} layers must be {_layer_type(window)} in this model")
    return window


def _rotary(reader: _ConfigReader) -> Rotary:
    """transformers 5 writes rope_parameters; earlier versions wrote rope_theta and rope_scaling."""
    rope = _ConfigReader(
        reader.table("rope_scaling") or reader.table("rope_parameters"), f"{reader.where}: rope_parameters"
    )
    for table in (rope, reader):
        if table.number("partial_rotary_factor", 1.0) != 1:
            table.refuse("partial_rotary_factor", "it must be 1: all channels of a head are rotated")
    named = "rope_type" if "rope_type" in rope.content else "type"
    kind = rope.one_of(
        named, ("default", "linear", "llama3"), "default", "other kinds of RoPE scaling are not supported"
    )
    base = rope.number("rope_theta", reader.number("rope_theta", 10_000.0))
    if kind == "default":
        return Rotary(base)
    if "factor" not in rope.content:
        rope.refuse("factor", f"{kind} needs one")
    factor = rope.number("factor", 1.0)
    if kind == "linear":
        return Rotary(base, stretch=Stretch(factor))
    key = "original_max_position_embeddings"
    original = (
        reader.integer(key)
        if key in reader.content
        else rope.integer(key, reader.content.get("max_position_embeddings"))
    )
    for name in ("low_freq_factor", "high_freq_factor"):
        if name not in rope.content:
            rope.refuse(name, f"{kind} needs one")
    low, high = rope.number("low_freq_factor", 1.0), rope.number("high_freq_factor", 4.0)
    return Rotary(base, stretch=Stretch(factor, original, low, high))


def _rope_of(config: GPTConfig) -> dict[str, Any]:
    """Both spellings, for older and newer versions of transformers."""
    assert config.rotary is not None
    base, stretch = config.rotary.base, config.rotary.stretch
    if stretch is None:
        return {"rope_theta": base, "rope_parameters": {"rope_type": "default", "rope_theta": base}}
    scaling: dict[str, Any] = {"rope_type": "linear", "factor": stretch.factor}
    if stretch.original is not None:
        scaling = {
            "rope_type": "llama3",
            "factor": stretch.factor,
            "original_max_position_embeddings": stretch.original,
            "low_freq_factor": stretch.low,
            "high_freq_factor": stretch.high,
        }
    return {"rope_theta": base, "rope_scaling": scaling, "rope_parameters": {**scaling, "rope_theta": base}}


def _regard_config(reader: _ConfigReader) -> GPTConfig:
    names = {field.name for field in fields(GPTConfig)}
    unknown = sorted(reader.content.keys() - names - {"model_type", "architectures", "dtype"})
    if unknown:
        reader.refuse(unknown[0], "this version of regard does not know it; get a newer one")
    values = {name: reader.content[name] for name in reader.content if name in names}
    if isinstance(values.get("end"), list):  # JSON has no tuples
        values["end"] = reader.ids("end", None)
    if values.get("rotary") is not None:
        rotary = _typed(Rotary, reader.table("rotary"), f"{reader.where}: rotary")
        if rotary.get("stretch") is not None:
            rotary["stretch"] = Stretch(**_typed(Stretch, rotary["stretch"], f"{reader.where}: stretch"))
        values["rotary"] = Rotary(**rotary)
    return GPTConfig(**_typed(GPTConfig, values, reader.where))


def _typed(kind: type, values: dict[str, Any], where: str) -> dict[str, Any]:
    """The values, checked against the types of a dataclass."""
    hints, reader = get_type_hints(kind), _ConfigReader(values, where)
    for field in fields(kind):
        if field.default is MISSING and field.name not in values:
            reader.refuse(field.name, "it is required")
    checked: dict[str, Any] = {}
    for name, value in values.items():
        if name not in hints:
            reader.refuse(name, "this version of regard does not know it; get a newer one")
        allowed = tuple(get_origin(t) or t for t in get_args(hints[name]) or (hints[name],))
        if get_origin(hints[name]) is Literal:
            reader.one_of(name, allowed, None, "these are the values that this version of regard supports")
        elif int in allowed and type(value) is int and not -LARGEST < value < LARGEST:
            reader.refuse(name, "it must be below 2³¹")
        elif float in allowed and type(value) is int:
            value = float(value)
        elif type(value) not in allowed and not (Stretch in allowed and isinstance(value, dict)):
            reader.refuse(name, f"it must be {' or '.join(t.__name__ for t in allowed)}")
        checked[name] = value
    return checked

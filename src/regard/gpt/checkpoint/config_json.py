"""config.json: what transformers says of a model, and the GPTConfig that says the same.

What a config.json asks for and we do not compute is refused by name: a model that loads gives the same results.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from typing import Any, Literal, NoReturn, get_args, get_origin, get_type_hints

from regard.attention.positions import Rotary, Stretch
from regard.gpt.config import GPTConfig

KINDS = ("gpt2", "llama", "mistral", "qwen2", "qwen3", "regard")
CLASSES = {
    "gpt2": "GPT2LMHeadModel",
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "regard": "GPT",
}
# The token that ends a text, where transformers fills one in.
ENDS = {"gpt2": 50256, "llama": 2, "mistral": 2}
# transformers' names for the feed-forwards that its GPT-2 can have.
GPT2_ACTIVATIONS = {"gelu_new": "gelu", "gelu_pytorch_tanh": "gelu", "gelu": "gelu_exact"}


def kind_of(config: GPTConfig) -> str:
    """The model_type that transformers has for such a model; "regard" where it has none.

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
    """What config.json says of such a model.

    >>> found = config_to_transformers(GPTConfig.preset("gpt2-small"))
    >>> found["model_type"], found["n_embd"], found["architectures"]
    ('gpt2', 768, ['GPT2LMHeadModel'])

    A model that transformers has no class for is model_type "regard", with our own fields; transformers then says
    that it does not know it.
    """
    kind, c = kind_of(config), config
    found: dict[str, Any] = {"model_type": kind, "architectures": [CLASSES[kind]]}
    if kind == "regard":
        return found | asdict(c)
    found |= {"vocab_size": c.vocab_size, "tie_word_embeddings": c.tied}
    first, end = next(iter(c.ends), None), list(c.end) if isinstance(c.end, tuple) else c.end
    found |= {"bos_token_id": first if kind == "gpt2" else None, "eos_token_id": end, "pad_token_id": None}
    # transformers' Llama has one dropout only; the other two are ours, so that a model comes back as it was.
    found |= {"resid_pdrop": c.dropout, "embd_pdrop": c.dropout}
    if kind == "gpt2":
        return found | {
            "n_positions": c.context_length,
            "n_embd": c.d_model,
            "n_layer": c.num_layers,
            "n_head": c.num_heads,
            "n_inner": c.d_ff,
            "activation_function": next(k for k, v in GPT2_ACTIVATIONS.items() if v == c.feed_forward),
            "layer_norm_epsilon": c.norm_eps,
            "attn_pdrop": c.dropout,
        }
    found |= {
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
        found |= {"attention_bias": c.bias, "mlp_bias": c.bias}
    elif kind == "mistral":
        found |= {"sliding_window": c.window}
    else:
        found |= {"sliding_window": c.window, "use_sliding_window": c.window is not None, "max_window_layers": 0}
        found |= {"layer_types": [_layer_type(c.window)] * c.num_layers}
    return found


def config_from_transformers(found: Mapping[str, Any], where: str = "config.json") -> GPTConfig:
    """The config of a model by its config.json.

    >>> found = config_to_transformers(GPTConfig.preset("gpt2-small"))
    >>> config_from_transformers(found) == GPTConfig.preset("gpt2-small")
    True

    What would change the results and cannot be had here is refused by name. `end` is all of its eos_token_ids that
    the vocabulary holds.
    """
    told = _Told(found, where)
    kind = told.one_of("model_type", KINDS, None, "these are the kinds that can be loaded")
    try:
        if kind == "regard":
            return _regard_config(told)
        sizes = _gpt2_config(told) if kind == "gpt2" else _llama_config(told, kind)
        told.one_of("quantization_config", (None,), None, "only weights that are not quantised can be loaded")
        sizes |= {"vocab_size": told.whole("vocab_size"), "tied": told.flag("tie_word_embeddings", kind == "gpt2")}
        return GPTConfig(**sizes, end=told.end(ENDS.get(kind), sizes["vocab_size"]))
    except ValueError as error:
        if str(error).startswith(where):
            raise
        raise ValueError(f"{where}: {error}. Nothing was loaded.") from error


def end_from_transformers(
    found: Mapping[str, Any], config: GPTConfig, where: str = "generation_config.json"
) -> int | tuple[int, ...] | None:
    """What ends a text by generation_config.json, which transformers heeds before config.json.

    >>> end_from_transformers({"eos_token_id": [7, 9]}, GPTConfig.preset("tiny"))
    (7, 9)
    """
    told = _Told(found, where)
    return config.end if found.get("eos_token_id") is None else told.end(None, config.vocab_size)


class _Told:
    """A stranger's config.json: values are asked for by name and type, and refused by name."""

    def __init__(self, found: Mapping[str, Any], where: str) -> None:
        self.found, self.where = found, where

    def refuse(self, key: str, why: str) -> NoReturn:
        value = repr(self.found[key]) if key in self.found else "missing"
        raise ValueError(f"{self.where}: {key} is {value[:80]}; {why}. Nothing was loaded.")

    def one_of(self, key: str, allowed: tuple[Any, ...], default: Any, why: str) -> Any:
        value = self.found.get(key, default)
        if not any(type(value) is type(one) and value == one for one in allowed):
            known = ", ".join(map(repr, allowed))
            self.refuse(key, f"it must be {'one of ' * (len(allowed) > 1)}{known}: {why}")
        return value

    def whole(self, key: str, default: int | None = None) -> int:
        value = self.found.get(key, default)
        if type(value) is not int or not 1 <= value < 1 << 31:
            self.refuse(key, "it must be a whole number of at least 1 and below 2³¹")
        return value

    def number(self, key: str, default: float) -> float:
        value = self.found.get(key, default)
        if type(value) not in (int, float) or not math.isfinite(value):
            self.refuse(key, "it must be a number")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self.found.get(key, default)
        if type(value) is not bool:
            self.refuse(key, "it must be true or false")
        return value

    def table(self, key: str) -> dict[str, Any]:
        value = self.found.get(key)
        if value is not None and not isinstance(value, dict):
            self.refuse(key, "it must be a JSON object")
        return value or {}

    def end(self, default: int | None, vocab_size: int) -> int | tuple[int, ...] | None:
        held = tuple(i for i in dict.fromkeys(self.ids("eos_token_id", default)) if 0 <= i < vocab_size)
        return held if len(held) > 1 else next(iter(held), None)

    def ids(self, key: str, default: int | None) -> tuple[int, ...]:
        value = self.found.get(key, default)
        found = value if isinstance(value, list) else [] if value is None else [value]
        if not all(type(i) is int for i in found):
            self.refuse(key, "it must be a token id, or a list of them")
        return tuple(found)

    def dropout(self, *keys: str, default: float) -> float:
        given = {key: self.number(key, default) for key in keys}
        if len(set(given.values())) > 1:
            told = ", ".join(f"{key} is {value}" for key, value in given.items())
            raise ValueError(
                f"{self.where}: {told}; one dropout serves for all three here, so set them alike "
                "(they act in training only). Nothing was loaded."
            )
        return given[keys[0]]


def _gpt2_config(told: _Told) -> dict[str, Any]:
    activation = told.one_of("activation_function", tuple(GPT2_ACTIVATIONS), "gelu_new", "a GELU, exact or by tanh")
    told.one_of("scale_attn_weights", (True,), True, "scores are always divided by √head_dim")
    told.one_of("scale_attn_by_inverse_layer_idx", (False,), False, "scores are scaled alike in all layers")
    told.one_of("reorder_and_upcast_attn", (False,), False, "attention is computed in the dtype of the weights")
    told.one_of("add_cross_attention", (False,), False, "there is one text, and no other to look at")
    return {
        "context_length": told.whole("n_positions"),
        "num_layers": told.whole("n_layer"),
        "d_model": told.whole("n_embd"),
        "num_heads": told.whole("n_head"),
        "d_ff": None if told.found.get("n_inner") is None else told.whole("n_inner"),
        "feed_forward": GPT2_ACTIVATIONS[activation],
        "norm_eps": told.number("layer_norm_epsilon", 1e-5),
        "dropout": told.dropout("resid_pdrop", "embd_pdrop", "attn_pdrop", default=0.1),
    }


def _llama_config(told: _Told, kind: str) -> dict[str, Any]:
    layers, width, heads = (told.whole(k) for k in ("num_hidden_layers", "hidden_size", "num_attention_heads"))
    head_dim = told.found.get("head_dim", 128 if kind == "qwen3" else None)  # as transformers fills it in
    if head_dim is not None and told.whole("head_dim", 128) * heads != width:
        told.refuse("head_dim", f"times num_attention_heads ({heads}) it must be hidden_size ({width})")
    told.one_of("hidden_act", ("silu", "swish"), "silu", "the gate of the feed-forward")
    attention_bias, mlp_bias = told.flag("attention_bias", False), told.flag("mlp_bias", False)
    if kind == "llama" and attention_bias != mlp_bias:
        told.refuse("attention_bias", f"mlp_bias ({mlp_bias}) must be the same: all linear layers have a bias, or none")
    if kind != "llama" and (attention_bias or mlp_bias):
        told.refuse("attention_bias" if attention_bias else "mlp_bias", f"{kind} is loaded without such biases")
    eps = told.number("rms_norm_eps", 1e-6)
    if kind == "qwen3" and eps != 1e-6:
        told.refuse("rms_norm_eps", "norms of queries and keys have 1e-06 here")
    return {
        "context_length": told.whole("max_position_embeddings"),
        "num_layers": layers,
        "d_model": width,
        "num_heads": heads,
        "num_kv_heads": _kv_heads(told, kind, heads),
        "d_ff": told.whole("intermediate_size"),
        "dropout": told.dropout("attention_dropout", "resid_pdrop", "embd_pdrop", default=0.0),
        "rotary": _rotary(told),
        "window": _window(told, kind, layers),
        "qk_norm": kind == "qwen3",
        "norm": "rms",
        "norm_eps": eps,
        "feed_forward": "swiglu",
        "qkv_bias": kind == "qwen2" or attention_bias,
        "bias": mlp_bias,
    }


def _kv_heads(told: _Told, kind: str, heads: int) -> int | None:
    if told.found.get("num_key_value_heads") is None and (kind == "llama" or "num_key_value_heads" in told.found):
        return None
    number = told.whole("num_key_value_heads")
    if heads % number:
        told.refuse("num_key_value_heads", f"num_attention_heads ({heads}) must be divisible by it")
    return None if number == heads else number


def _layer_type(window: int | None) -> str:
    return "full_attention" if window is None else "sliding_attention"


def _window(told: _Told, kind: str, layers: int) -> int | None:
    """The window of all layers; none where none slides. Models whose layers differ are refused."""
    # What transformers fills in where nothing is said.
    window = told.whole("sliding_window", 4096) if told.found.get("sliding_window", 4096) is not None else None
    types = told.found.get("layer_types")
    if types is not None and not isinstance(types, list):
        told.refuse("layer_types", "it must be a list")
    if kind == "llama":
        window = None  # transformers' Llama reads it not
    elif kind != "mistral":
        window = window if told.flag("use_sliding_window", False) else None
        # Qwen's first layers see everything, unless all are told to slide.
        first = layers if window is None else max(0, min(layers, told.number("max_window_layers", 28.0)))
        if types is None and 0 < first < layers:
            told.refuse("max_window_layers", f"all {layers} layers must have the same window: 0 or {layers} of them")
        slides = first == 0 if types is None else "sliding_attention" in types
        window = window if slides else None
    if types is not None and types != [_layer_type(window)] * layers:
        told.refuse("layer_types", f"all {layers} layers must be {_layer_type(window)} in this model")
    return window


def _rotary(told: _Told) -> Rotary:
    """transformers 5 writes rope_parameters; before, it was rope_theta and rope_scaling."""
    rope = _Told(told.table("rope_scaling") or told.table("rope_parameters"), f"{told.where}: rope_parameters")
    whole_head = "all channels of a head are turned"
    for table in (rope, told):
        if table.number("partial_rotary_factor", 1.0) != 1:
            table.refuse("partial_rotary_factor", f"it must be 1: {whole_head}")
    named = "rope_type" if "rope_type" in rope.found else "type"
    kind = rope.one_of(
        named, ("default", "linear", "llama3"), "default", "other ways to stretch positions are not built in"
    )
    base = rope.number("rope_theta", told.number("rope_theta", 10_000.0))
    if kind == "default":
        return Rotary(base)
    if "factor" not in rope.found:
        rope.refuse("factor", f"{kind} needs one")
    factor = rope.number("factor", 1.0)
    if kind == "linear":
        return Rotary(base, stretch=Stretch(factor))
    key = "original_max_position_embeddings"
    original = told.whole(key) if key in told.found else rope.whole(key, told.found.get("max_position_embeddings"))
    for name in ("low_freq_factor", "high_freq_factor"):
        if name not in rope.found:
            rope.refuse(name, f"{kind} needs one")
    low, high = rope.number("low_freq_factor", 1.0), rope.number("high_freq_factor", 4.0)
    return Rotary(base, stretch=Stretch(factor, original, low, high))


def _rope_of(config: GPTConfig) -> dict[str, Any]:
    """Both spellings, so that older readers turn as far as newer ones."""
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


def _regard_config(told: _Told) -> GPTConfig:
    names = {field.name for field in fields(GPTConfig)}
    strange = sorted(told.found.keys() - names - {"model_type", "architectures", "dtype"})
    if strange:
        told.refuse(strange[0], "this version of regard does not know it; get a newer one")
    values = {name: told.found[name] for name in told.found if name in names}
    if isinstance(values.get("end"), list):  # JSON knows no tuples
        values["end"] = told.ids("end", None)
    if values.get("rotary") is not None:
        rotary = _typed(Rotary, told.table("rotary"), f"{told.where}: rotary")
        if rotary.get("stretch") is not None:
            rotary["stretch"] = Stretch(**_typed(Stretch, rotary["stretch"], f"{told.where}: stretch"))
        values["rotary"] = Rotary(**rotary)
    return GPTConfig(**_typed(GPTConfig, values, told.where))


def _typed(kind: type, values: dict[str, Any], where: str) -> dict[str, Any]:
    """The values, if they are what the fields of this dataclass hold."""
    hints, told = get_type_hints(kind), _Told(values, where)
    for field in fields(kind):
        if field.default is MISSING and field.name not in values:
            told.refuse(field.name, "a model cannot do without")
    found: dict[str, Any] = {}
    for name, value in values.items():
        if name not in hints:
            told.refuse(name, "this version of regard does not know it; get a newer one")
        allowed = tuple(get_origin(t) or t for t in get_args(hints[name]) or (hints[name],))
        if get_origin(hints[name]) is Literal:
            told.one_of(name, allowed, None, "the words that this version of regard knows")
        elif float in allowed and type(value) is int:
            value = float(value)
        elif type(value) not in allowed and not (Stretch in allowed and isinstance(value, dict)):
            told.refuse(name, f"it must be {' or '.join(t.__name__ for t in allowed)}")
        found[name] = value
    return found

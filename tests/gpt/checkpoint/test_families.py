import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpt.directories import LLAMA as SIZES
from regard import GPT, GPTConfig, Rotary
from regard.attention.positions import Stretch
from regard.gpt.checkpoint import families, weight_names
from regard.gpt.checkpoint.families import config_from_transformers, config_to_transformers, model_type_of
from regard.gpt.checkpoint.stored_tensors import read_header

transformers = pytest.importorskip("transformers")

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 11,
}
OURS = {
    "vocab_size": 97,
    "context_length": 23,
    "num_layers": 2,
    "d_model": 60,
    "num_heads": 6,
    "num_kv_heads": 3,
    "d_ff": 37,
    "norm": "rms",
    "norm_eps": 1e-6,
    "feed_forward": "swiglu",
    "bias": False,
    "tied": False,
}
GPT2 = {"model_type": "gpt2", "vocab_size": 97, "n_positions": 23, "n_embd": 21, "n_layer": 2, "n_head": 3}


def told(model_type, **more):
    return {"model_type": model_type, **SIZES, **more}


@given(
    heads=st.sampled_from([(6, None), (6, 3), (6, 1)]),
    d_ff=st.sampled_from([None, 37]),
    dropout=st.sampled_from([0.0, 0.1]),
    rotary=st.sampled_from(
        [None, Rotary(), Rotary(5e5, stretch=Stretch(8.0, 11)), Rotary(stretch=Stretch(2.0)), Rotary(interleaved=True)]
    ),
    window=st.sampled_from([None, 5]),
    qk_norm=st.booleans(),
    norm=st.sampled_from(["layer", "rms"]),
    norm_eps=st.sampled_from([1e-5, 1e-6]),
    feed_forward=st.sampled_from(["gelu", "gelu_exact", "swiglu"]),
    qkv_bias=st.booleans(),
    bias=st.booleans(),
    tied=st.booleans(),
    end=st.sampled_from([None, 0, 96, (5, 96)]),
)
def test_every_config_comes_back_as_it_was(heads, d_ff, **options):
    config = GPTConfig(97, 23, 2, 60, *heads, d_ff=d_ff, **options)
    found = config_from_transformers(json.loads(json.dumps(config_to_transformers(config))))
    if model_type_of(config) not in ("gpt2", "regard"):
        config = config.with_(d_ff=config.inner)  # the Llama family always says it
    assert found == config


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        (GPTConfig.preset("gpt2-xl"), "gpt2"),
        (GPTConfig(**OURS, qkv_bias=False, rotary=Rotary()), "llama"),
        (GPTConfig(**{**OURS, "bias": True}, qkv_bias=True, rotary=Rotary()), "llama"),
        (GPTConfig(**OURS, qkv_bias=False, rotary=Rotary(), window=5), "mistral"),
        (GPTConfig(**OURS, qkv_bias=True, rotary=Rotary()), "qwen2"),
        (GPTConfig(**OURS, qkv_bias=True, rotary=Rotary(), window=5), "qwen2"),
        (GPTConfig(**OURS, qkv_bias=False, rotary=Rotary(), qk_norm=True), "qwen3"),
        (GPTConfig(**OURS, qkv_bias=False, rotary=Rotary(interleaved=True)), "regard"),
        (GPTConfig(**OURS, qkv_bias=False), "regard"),
        (GPTConfig(**{**OURS, "norm": "layer"}, qkv_bias=False, rotary=Rotary()), "regard"),
        (GPTConfig.preset("tiny", qkv_bias=False), "regard"),
        (GPTConfig.preset("tiny", window=5), "regard"),
    ],
)
def test_each_config_is_written_as_the_kind_that_computes_it(config, kind):
    assert config_to_transformers(config)["model_type"] == model_type_of(config) == kind


def test_gpt2s_own_config_is_gpt2_small():
    found = config_from_transformers(transformers.GPT2Config().to_dict())
    assert found == GPTConfig.preset("gpt2-small", dropout=0.1)


def test_what_transformers_writes_of_llama_3_is_read():
    theirs = transformers.LlamaConfig(**SIZES, rope_parameters={**LLAMA3, "rope_theta": 500_000.0}, eos_token_id=[5, 7])
    stretched = Rotary(500_000.0, stretch=Stretch(8.0, 11, 1.0, 4.0))
    wanted = GPTConfig(**OURS, qkv_bias=False, rotary=stretched, end=(5, 7))
    assert config_from_transformers(theirs.to_dict()) == wanted


def test_rope_as_older_versions_wrote_it_is_read():
    found = config_from_transformers(told("llama", rope_theta=500.0, rope_scaling=LLAMA3))
    assert found.rotary == Rotary(500.0, stretch=Stretch(8.0, 11, 1.0, 4.0))
    found = config_from_transformers(told("llama", rope_theta=500.0, rope_scaling={"type": "linear", "factor": 2}))
    assert found.rotary == Rotary(500.0, stretch=Stretch(2.0))
    assert config_from_transformers(told("llama", rope_scaling=None)).rotary == Rotary(10_000.0)


def test_all_of_several_ends_are_kept_once_each():
    assert config_from_transformers({**GPT2, "eos_token_id": [5, 96, 5, 50256]}).end == (5, 96)
    assert config_from_transformers({**GPT2, "eos_token_id": [5]}).end == 5
    assert config_from_transformers({**GPT2, "eos_token_id": []}).end is None


def test_an_end_that_the_vocabulary_does_not_hold_is_none():
    assert config_from_transformers({**GPT2, "eos_token_id": 50256}).end is None


def test_a_window_that_is_switched_off_is_none():
    assert config_from_transformers(told("qwen2", sliding_window=5, use_sliding_window=False)).window is None
    assert config_from_transformers(told("mistral", sliding_window=None)).window is None


@pytest.mark.parametrize("kind", ["gpt2", "llama", "mistral", "qwen2", "qwen3"])
def test_what_a_config_does_not_say_is_what_transformers_fills_in(kind):
    written = {**GPT2, "vocab_size": 50_261} if kind == "gpt2" else told(kind)
    written |= {"hidden_size": 768} if kind == "qwen3" else {}
    filled_in = transformers.AutoConfig.for_model(**written).to_dict()
    assert config_from_transformers(written) == config_from_transformers(filled_in)


REFUSED = {
    "no kind": ({**GPT2, "model_type": "bert"}, r"model_type is 'bert'; it must be one of 'gpt2', 'llama', .*kinds"),
    "no word of its kind": ({}, r"model_type is missing; it must be one of 'gpt2', 'llama'"),
    "a kind that is a list": ({"model_type": ["gpt2"]}, r"model_type is \['gpt2'\]"),
    "relu": ({**GPT2, "activation_function": "relu"},
        r"activation_function is 'relu'; it must be one of 'gelu_new', 'gelu_p"),
    "unscaled scores": ({**GPT2, "scale_attn_weights": False}, r"scale_attn_weights is False; it must be True: scores"),
    "scores by layer": ({**GPT2, "scale_attn_by_inverse_layer_idx": True}, r"scale_attn_by_inverse_layer_idx is True"),
    "upcast": ({**GPT2, "reorder_and_upcast_attn": True}, r"reorder_and_upcast_attn is True; it must be False"),
    "cross attention": ({**GPT2, "add_cross_attention": True}, r"add_cross_attention is True"),
    "three dropouts": ({**GPT2, "attn_pdrop": 0.0},
        r"resid_pdrop is 0.1, embd_pdrop is 0.1, attn_pdrop is 0.0; there is one dropout"),
    "no width": ({k: v for k, v in GPT2.items() if k != "n_embd"}, r"n_embd is missing; it must be a whole number"),
    "a width in words": ({**GPT2, "n_embd": "21"}, r"n_embd is '21'; it must be a whole number"),
    "a width of true": ({**GPT2, "n_embd": True}, r"n_embd is True; it must be a whole number"),
    "a width of terabytes": ({**GPT2, "n_embd": 2**40}, r"n_embd is 1099511627776; it must be .*below 2³¹"),
    "heads that do not divide": ({**GPT2, "n_head": 4},
        r"d_out \(21\) must be divisible by num_heads \(4\); try 20 or 24"),
    "tied perhaps": ({**GPT2, "tie_word_embeddings": None}, r"tie_word_embeddings is None; it must be true or false"),
    "quantised": ({**GPT2, "quantization_config": {"bits": 4}},
        r"quantization_config is \{'bits': 4\}; .*not quantised"),
    "an end in words": ({**GPT2, "eos_token_id": "</s>"}, r"eos_token_id is '</s>'; it must be a token id"),
    "gelu in llama": (told("llama", hidden_act="gelu"), r"hidden_act is 'gelu'; it must be one of 'silu', 'swish'"),
    "wide heads": (told("mistral", head_dim=128),
        r"head_dim is 128; times num_attention_heads \(6\) it must be hidden_size \(60\)"),
    "wide heads unsaid": (told("qwen3"), r"head_dim is missing; times num_attention_heads"),
    "half the biases": (told("llama", attention_bias=True),
        r"attention_bias is True; mlp_bias \(False\) must be the same"),
    "the other half": (told("llama", mlp_bias=True), r"attention_bias is missing; mlp_bias \(True\) must be the same"),
    "biases in qwen3": (told("qwen3", head_dim=10, attention_bias=True),
        r"attention_bias is True; qwen3 is loaded without"),
    "another norm in qwen3": (told("qwen3", head_dim=10, rms_norm_eps=1e-5),
        r"rms_norm_eps is 1e-05; norms of queries"),
    "key heads that do not divide": (told("llama", num_key_value_heads=4),
        r"num_key_value_heads is 4; num_attention_heads \(6\)"),
    "key heads unsaid": (
        {k: v for k, v in told("mistral").items() if k != "num_key_value_heads"},
        r"num_key_value_heads is missing",
    ),
    "mixed layers": (
        told("qwen2", use_sliding_window=True, sliding_window=5, layer_types=["full_attention", "sliding_attention"]),
        r"layer_types is \['full_attention', 'sliding_attention'\]; all 2 layers must be sliding_attention",
    ),
    "mixed layers by number": (
        told("qwen2", use_sliding_window=True, sliding_window=5, max_window_layers=1),
        r"max_window_layers is 1; all 2 layers must have the same window: 0 or 2 of them",
    ),
    "strange layers": (told("llama", layer_types=["chunked_attention"] * 2),
        r"layer_types is .* must be full_attention"),
    "layers in words": (told("llama", layer_types="full_attention"),
        r"layer_types is 'full_attention'; it must be a list"),
    "yarn": (
        told("llama", rope_parameters={"rope_type": "yarn", "factor": 2.0}),
        r"rope_parameters: rope_type is 'yarn'; it must be one of 'default', 'linear', 'llama3': other kinds",
    ),
    "dynamic, the older way": (told("llama", rope_scaling={"type": "dynamic", "factor": 2.0}),
        r"type is 'dynamic'; it must"),
    "linear by nothing": (told("llama", rope_scaling={"type": "linear"}), r"factor is missing; linear needs one"),
    "llama3 by half": (
        told("llama", rope_parameters={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0}),
        r"high_freq_factor is missing; llama3 needs one",
    ),
    "rope in words": (told("llama", rope_parameters="default"),
        r"rope_parameters is 'default'; it must be a JSON object"),
    "half a head turned": (
        told("llama", rope_parameters={"rope_theta": 500.0, "partial_rotary_factor": 0.5}),
        r"partial_rotary_factor is 0.5; it must be 1: all channels",
    ),
    "half a head turned, the older way": (told("qwen2", partial_rotary_factor=0.5), r"partial_rotary_factor is 0.5"),
    "a base of nothing": (told("llama", rope_theta=0), r"the rotary base \(0.0\) must be above 1"),
    "a base of infinity": (told("llama", rope_theta=float("inf")), r"rope_theta is inf; it must be a number"),
    "ours, of tomorrow": (
        {**config_to_transformers(GPTConfig.preset("tiny", bias=False)), "flux": 1},
        r"flux is 1; this version of regard does not know it; get a newer one",
    ),
    "ours, without a width": (
        {k: v for k, v in config_to_transformers(GPTConfig.preset("tiny", bias=False)).items() if k != "d_model"},
        r"d_model is missing; it is required",
    ),
    "ours, with a width in words": (
        {**config_to_transformers(GPTConfig.preset("tiny", bias=False)), "d_model": "256"},
        r"d_model is '256'; it must be int",
    ),
    "ours, with strange norms": (
        {**config_to_transformers(GPTConfig.preset("tiny", bias=False)), "norm": ["layer"]},
        r"norm is \['layer'\]; it must be one of 'layer', 'rms'",
    ),
    "ours, with a strange rotary": (
        {**config_to_transformers(GPTConfig.preset("tiny", bias=False)), "rotary": {"base": "10000"}},
        r"rotary: base is '10000'; it must be float",
    ),
    "ours, with a strange stretch": (
        {**config_to_transformers(GPTConfig.preset("tiny", bias=False)), "rotary": {"stretch": {"original": 11}}},
        r"stretch: factor is missing",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_computed_is_refused_by_name(what):
    found, message = REFUSED[what]
    with pytest.raises(ValueError, match=rf"^here/config\.json: .*{message}.*\. Nothing was loaded\.$"):
        config_from_transformers(found, "here/config.json")


def test_a_model_family_touches_two_files(tmp_path, monkeypatch):
    """A row of FAMILIES here and one of LAYOUTS in weight_names: such models are saved and loaded."""
    names = {"blocks": "ring", "W_query": "ask", "final_norm": "last", "head": "lm_head"}
    wheel = families.Family(
        "WheelForCausalLM",
        lambda config: config.rotary is not None and config.rotary.interleaved,
        lambda reader: {**reader.sizes({"spokes": "num_heads"}), **OURS, "rotary": Rotary(interleaved=True)},
        lambda config: {"spokes": config.num_heads},
    )
    monkeypatch.setattr(families, "FAMILIES", {"wheel": wheel, **families.FAMILIES})
    monkeypatch.setitem(weight_names.LAYOUTS, "wheel", weight_names.Layout("model.", names))
    model = GPT(GPTConfig(**OURS, rotary=Rotary(interleaved=True)))
    model.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == ["WheelForCausalLM"]
    stored = read_header(tmp_path / "model.safetensors")
    assert {"model.ring.1.attention.ask.weight", "model.last.weight", "lm_head.weight"} < stored.keys()
    loaded = GPT.from_pretrained(tmp_path)
    assert loaded.config == model.config
    ids = torch.tensor([[5, 7, 11]])
    assert torch.equal(loaded(ids), model.eval()(ids))

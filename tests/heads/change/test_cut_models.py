"""Cuts in models of transformers against attention that is cut by hand in float64, fused and eager."""

import copy

import pytest
import torch
import transformers

import regard
from heads import models
from heads.by_hand import output_by_hand, without_columns
from heads.models import ids, small

EDGES = [(3, 2), (4, 4), (0, 0)]  # the last leaves its query without keys, where attention is causal


def build(model, config, **sizes):
    return lambda: getattr(transformers, model)(getattr(transformers, config)(**sizes)).eval()


GPT_SIZES = {"n_embd": 24, "n_layer": 2, "n_head": 3, "vocab_size": 53, "n_positions": 64}
GPT_IDS = {"bos_token_id": 1, "eos_token_id": 2}
OPT_SIZES = {"hidden_size": 32, "ffn_dim": 41, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 53}
MODELS = {
    "gpt2": models.gpt2,
    "llama": models.llama,
    "qwen": models.qwen,
    "mistral": models.mistral,
    "bert": models.bert,
    "vit": models.vit,
    "bart": models.bart,
    "t5": models.t5,
    "gpt_neox": build("GPTNeoXModel", "GPTNeoXConfig", **small()),
    "opt": build("OPTModel", "OPTConfig", max_position_embeddings=64, word_embed_proj_dim=32, **OPT_SIZES),
    "phi": build("PhiModel", "PhiConfig", **small()),
    "roberta": build("RobertaModel", "RobertaConfig", **small()),
    "distilbert": build(
        "DistilBertModel", "DistilBertConfig", vocab_size=53, dim=32, hidden_dim=41, n_layers=2, n_heads=4
    ),
    "electra": build("ElectraModel", "ElectraConfig", **small(embedding_size=32)),
    "albert": build("AlbertModel", "AlbertConfig", **small(embedding_size=16)),
    "olmo2": build("Olmo2Model", "Olmo2Config", **small()),
    "biogpt": build("BioGptModel", "BioGptConfig", **small()),
    "gemma2": build("Gemma2Model", "Gemma2Config", **small(num_key_value_heads=2, head_dim=8, sliding_window=3)),
}
CASES = [(name, kind) for name in MODELS for kind in ("sdpa", "eager") if (name, kind) != ("gemma2", "sdpa")]


def made(name, kind="sdpa"):
    """A model with weights large enough that every head matters, and its inputs."""
    torch.manual_seed(7)
    model = MODELS[name]()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.2)
    model.set_attn_implementation(kind)
    inputs = {"pixel_values": torch.randn(2, 3, 12, 12)} if name == "vit" else {"input_ids": ids(2, 7)}
    return model, inputs | ({"decoder_input_ids": ids(2, 5)} if name in ("bart", "t5") else {})


def assert_cut(model, inputs, expected, **cut):
    """The model, cut, gives the expected output, which differs from that without the cut."""
    before = model(**inputs)[0]
    with regard.cut(model, **cut):
        out = model(**inputs)[0]
    close = 1e-12 if out.dtype is torch.float64 else 1e-5
    torch.testing.assert_close(out.double(), expected, rtol=close, atol=close)
    assert (out - before).abs().max() > 1e-3
    assert torch.equal(model(**inputs)[0], before)


@pytest.mark.parametrize(("name", "kind"), CASES)
@torch.no_grad()
def test_heads_that_are_cut_hand_over_nothing(name, kind):
    model, inputs = made(name, kind)
    expected, _ = output_by_hand(model, inputs, {(0, 1): 0, (1, 0): 0, (1, 2): 0})
    assert_cut(model, inputs, expected, heads=[(0, 1), (1, 0), (1, 2)])


@pytest.mark.parametrize(("name", "kind"), CASES)
@torch.no_grad()
def test_edges_that_are_cut_are_hidden_before_the_softmax(name, kind):
    model, inputs = made(name, kind)
    expected, plan = output_by_hand(model, inputs, edges=[(layer, None, *edge) for layer in (0, 1) for edge in EDGES])
    assert_cut(model, inputs, expected, edges=EDGES, layers=[0, 1])
    with regard.cut(model, edges=EDGES, layers=[0, 1]), regard.watch(model) as seen:
        model(**inputs)
    for layer, weights in enumerate(plan["weights"]):
        torch.testing.assert_close(seen[layer].weights().double(), weights, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("name", "kind"), CASES)
@torch.no_grad()
def test_a_head_hands_over_its_mean(name, kind):
    model, inputs = made(name, kind)
    expected, _ = output_by_hand(model, inputs, {(0, 1): "mean", (1, 2): "mean"})
    assert_cut(model, inputs, expected, heads=[(0, 1), (1, 2)], to="mean")


# Other eager code of transformers computes its softmax in float32.
DOUBLE = [
    *((name, "sdpa") for name in ("gpt2", "llama", "bert", "vit", "t5", "albert")),
    ("gpt2", "eager"),
    ("t5", "eager"),
]


@pytest.mark.parametrize(("name", "kind"), DOUBLE)
@torch.no_grad()
def test_in_float64_cuts_are_exact(name, kind):
    model, inputs = made(name, kind)
    double = copy.deepcopy(model).double()
    inputs = {key: t.double() if t.is_floating_point() else t for key, t in inputs.items()}
    expected, _ = output_by_hand(model, inputs, {(0, 1): 0})
    assert_cut(double, inputs, expected, heads=(0, 1))
    expected, _ = output_by_hand(model, inputs, edges=[(1, 2, *edge) for edge in EDGES])
    assert_cut(double, inputs, expected, heads=(1, 2), edges=EDGES)


PROJECTED = {
    "bloom": (
        build("BloomModel", "BloomConfig", vocab_size=53, hidden_size=32, n_layer=2, n_head=4),
        "self_attention.dense",
    ),
    "falcon": (build("FalconModel", "FalconConfig", **small()), "self_attention.dense"),
    "gptj": (
        build("GPTJModel", "GPTJConfig", **{**GPT_SIZES, "n_embd": 32, "n_head": 4}, rotary_dim=4, **GPT_IDS),
        "attn.out_proj",
    ),
    "mpt": (build("MptModel", "MptConfig", vocab_size=53, d_model=32, n_layers=2, n_heads=4), "attn.out_proj"),
    "deberta": (build("DebertaV2Model", "DebertaV2Config", **small()), "attention.output.dense"),
    "xlm": (build("XLMModel", "XLMConfig", vocab_size=53, emb_dim=32, n_layers=2, n_heads=4), "out_lin"),
}  # attention of their own, by softmax and product


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PROJECTED)
@torch.no_grad()
def test_a_head_cut_in_a_models_own_eager_code_is_one_without_output_weights(name):
    make, projection = PROJECTED[name]
    model, x = make(), ids(2, 7)
    with regard.watch(model, values=True) as seen:
        before = model(x)[0]
    with regard.cut(model, (1, 2)):
        out = model(x)[0]
    layer = next(n for n, _ in model.named_modules() if n.endswith(projection) and "1" in n.split("."))
    torch.testing.assert_close(out, without_columns(model, layer, 2, 4)(x)[0], rtol=1e-5, atol=1e-5)
    assert not torch.equal(out, before)
    with regard.cut(model, [(1, head) for head in range(4)], to=seen):
        torch.testing.assert_close(model(x)[0], before, rtol=1e-6, atol=1e-6)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PROJECTED)
@torch.no_grad()
def test_an_edge_cut_in_a_models_own_eager_code_leaves_the_other_weights_in_proportion(name):
    model, x = PROJECTED[name][0](), ids(2, 7)
    with regard.watch(model) as whole:
        before = model(x)[0]
    with regard.cut(model, edges=[(3, 1)], layers=[1]), regard.watch(model) as seen:
        out = model(x)[0]
    expected = whole[1].weights().clone()
    expected[:, :, 3, 1] = 0
    expected = expected / expected.sum(-1, keepdim=True)
    torch.testing.assert_close(seen[1].weights(), expected, rtol=1e-5, atol=1e-6)
    assert torch.equal(out[:, :3], before[:, :3])
    assert not torch.allclose(out[:, 3], before[:, 3])


CACHES = {"none": {"use_cache": False}, "static": {"cache_implementation": "static"}}
CUTS = {"heads": {"heads": [(0, 1), (1, 2)]}, "edges": {"edges": [(3, 2), (8, 7), (9, 9)]}}


@pytest.mark.parametrize("what", CUTS)
@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_generation_is_cut_at_the_same_positions_with_any_cache(name, cache, what):
    model, inputs = made(name)
    model.generation_config.eos_token_id = None
    options = {"max_new_tokens": 4, "do_sample": False, "output_logits": True, "return_dict_in_generate": True}
    with regard.cut(model, **CUTS[what]):
        growing = model.generate(**inputs, **options)
    with regard.cut(model, **CUTS[what]):
        other = model.generate(**inputs, **options, **CACHES[cache])
    torch.testing.assert_close(torch.stack(other.logits), torch.stack(growing.logits), rtol=1e-5, atol=1e-5)
    uncut = model.generate(**inputs, **options)
    assert not torch.allclose(torch.stack(uncut.logits), torch.stack(growing.logits))


def test_layers_of_an_encoder_and_a_decoder_have_the_numbers_of_a_watch_also_in_generation():
    torch.manual_seed(7)
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 41, "num_layers": 2, "num_heads": 4, "vocab_size": 53}
    config = transformers.T5Config(**sizes, pad_token_id=0, decoder_start_token_id=0)
    model, x = transformers.T5ForConditionalGeneration(config).eval(), ids(2, 7)
    options = {"max_new_tokens": 3, "min_new_tokens": 3, "output_logits": True, "return_dict_in_generate": True}
    places = {1: "encoder.block.1.layer.0.SelfAttention.o", 3: "decoder.block.0.layer.1.EncDecAttention.o"}
    for layer, projection in places.items():
        with regard.cut(model, (layer, 1)):
            out = model.generate(x, **options)
        expected = without_columns(model, projection, 1, 4).generate(x, **options)
        torch.testing.assert_close(torch.stack(out.logits), torch.stack(expected.logits), rtol=1e-5, atol=1e-5)
    with regard.cut(model, edges=[(2, 4)], layers=[3]):
        cached = model.generate(x, **options)
    with regard.cut(model, edges=[(2, 4)], layers=[3]):
        uncached = model.generate(x, **options, use_cache=False)
    torch.testing.assert_close(torch.stack(cached.logits), torch.stack(uncached.logits), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["sdpa", "eager"])
def test_gradients_are_those_of_the_model_cut_by_hand_and_0_in_what_is_cut(kind):
    model, inputs = made("llama", kind)
    edges = [(0, 0), (5, 2)]
    x = inputs["input_ids"]
    expected, _ = output_by_hand(
        model, inputs, {(0, 1): 0}, [(layer, None, *edge) for layer in (0, 1) for edge in edges]
    )
    with regard.cut(model, (0, 1)), regard.cut(model, edges=edges):
        out = model(x)[0]
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5)
    out.square().sum().backward()
    double = copy.deepcopy(model).double()
    double.zero_grad()
    double.set_attn_implementation("by_hand")
    from heads.by_hand import planned

    with planned({(0, 1): 0}, [(layer, None, *edge) for layer in (0, 1) for edge in edges]):
        double(x)[0].square().sum().backward()
    grads = {name: parameter.grad for name, parameter in double.named_parameters()}
    for name, parameter in model.named_parameters():
        size = grads[name].abs().max()
        torch.testing.assert_close(parameter.grad.double(), grads[name], rtol=1e-4, atol=1e-5 * float(size))
    assert not model.model.layers[0].self_attn.q_proj.weight.grad[8:16].any()

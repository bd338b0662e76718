"""The straight way computes what the modules compute, and steps aside where somebody listens to them."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import regard
from regard.attention.positions import Rotary
from regard.gpt import GPT, GPTConfig
from regard.gpt.generate import cpu_decoder as vector
from regard.gpt.generate.cpu_decoder import Matrix, Straight

GPT2 = GPTConfig(vocab_size=101, context_length=23, num_layers=2, d_model=24, num_heads=3)
LLAMA = GPT2.with_(
    num_heads=6, num_kv_heads=3, rotary=Rotary(), norm="rms", feed_forward="swiglu", bias=False, qkv_bias=False, tied=False
)  # fmt: skip
CONFIGS = {
    "gpt2": GPT2,
    "llama": LLAMA,
    "qwen": LLAMA.with_(qk_norm=True, qkv_bias=True),
    "mistral": LLAMA.with_(window=5),
}


def model_of(config, dtype=torch.float64):
    model = GPT(config).eval().to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model


@pytest.fixture(autouse=True)
def _cut_all(monkeypatch):
    """Small matrices are not worth cutting, but here all are cut."""
    monkeypatch.setattr(vector, "SMALL", 0)
    monkeypatch.setattr(vector, "PARTS", 4)


@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize("out", [3, 16, 37, 101])
def test_a_matrix_in_parts_is_the_matrix(rows, out):
    x, weight, bias = torch.randn(rows, 13).double(), torch.randn(out, 13).double(), torch.randn(out).double()
    torch.testing.assert_close(Matrix(weight, bias)(x), F.linear(x, weight, bias))
    torch.testing.assert_close(Matrix(weight)(x), F.linear(x, weight))


def test_no_weight_is_copied():
    weight = torch.randn(37, 13)
    cut = Matrix(weight)
    assert cut.cut == torch.backends.mkl.is_available()
    if cut.cut:
        assert cut.parts.data_ptr() == weight.data_ptr()


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("batch", [1, 3])
def test_straight_scores_are_the_models_scores(name, batch):
    model = model_of(CONFIGS[name])
    ids = torch.randint(0, 101, (batch, 13))
    with torch.inference_mode():
        assert Straight.fits(model, batch)
        straight, cache = Straight(model), model.cache(batch)
        model.hidden(ids[:, :7], cache=cache)
        for t in range(7, 13):
            torch.testing.assert_close(straight(ids[:, t], cache), model(ids[:, : t + 1])[:, -1])
        assert cache.length == 13


@pytest.mark.parametrize("name", CONFIGS)
def test_rows_that_start_later_see_only_their_own_tokens(name):
    model, starts = model_of(CONFIGS[name]), [0, 5, 2]
    ids = torch.randint(0, 101, (3, 13))
    with torch.inference_mode():
        straight, cache = Straight(model), model.cache(3)
        places = torch.arange(11) - torch.tensor(starts)[:, None]
        model.hidden(ids[:, :11], cache=cache, mask=regard.padding(places >= 0), positions=places.clamp(min=0))
        for t in (11, 12):
            alone = [model(ids[b : b + 1, s : t + 1])[0, -1] for b, s in enumerate(starts)]
            torch.testing.assert_close(straight(ids[:, t], cache, starts), torch.stack(alone))


def test_weights_that_do_not_lie_side_by_side_are_multiplied_one_by_one():
    model = model_of(GPT2)
    layer = model.blocks[0].attention
    layer.W_key.weight = nn.Parameter(layer.W_key.weight.clone())
    assert layer.joined() is None
    ids = torch.randint(0, 101, (1, 7))
    with torch.inference_mode():
        cache = model.cache()
        model.hidden(ids[:, :6], cache=cache)
        torch.testing.assert_close(Straight(model)(ids[:, 6], cache), model(ids)[:, -1])


def test_whoever_listens_is_heard():
    model = model_of(GPT2)
    assert Straight.fits(model, 1)
    for module in (model, model.blocks[1], model.blocks[0].feed_forward.up, model.final_norm):
        handle = module.register_forward_hook(lambda *_: None)
        assert not Straight.fits(model, 1)
        handle.remove()
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    assert not Straight.fits(model, 1)
    handle.remove()
    with regard.trace():
        assert not Straight.fits(model, 1)
    with regard.watch(model):
        model(torch.tensor([[5, 6]]))
        assert not Straight.fits(model, 1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not Straight.fits(model, 1)
    assert Straight.fits(model, 1)


def test_other_modules_dtypes_and_large_batches_go_the_models_way():
    assert not Straight.fits(model_of(GPT2, torch.bfloat16), 1)
    assert not Straight.fits(model_of(GPT2), vector.MOST_ROWS + 1)
    model = model_of(GPT2)
    model.blocks[0].feed_forward.up = nn.Sequential(model.blocks[0].feed_forward.up)
    assert not Straight.fits(model, 1)
    model = model_of(GPT2)
    nn.utils.parametrizations.weight_norm(model.blocks[0].attention.out_proj)
    assert not Straight.fits(model, 1)
    model = model_of(GPT2)
    model.final_norm.forward = lambda x: x
    assert not Straight.fits(model, 1)

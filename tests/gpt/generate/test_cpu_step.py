"""The step on a CPU computes what the modules compute, and is not used where hooks or observers need module calls."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import regard
from regard.attention.positions import Rotary
from regard.gpt import GPT, GPTConfig
from regard.gpt.generate import cpu_step
from regard.gpt.generate.cpu_step import BlockedLinear, CPUStep

GPT2 = GPTConfig(vocab_size=101, context_length=23, num_layers=2, d_model=24, num_heads=3)
LLAMA = GPT2.with_(
    num_heads=6, num_kv_heads=3, rotary=Rotary(), norm="rms", feed_forward="swiglu", bias=False, qkv_bias=False,
        tied=False
)  # fmt: skip
CONFIGS = {
    "gpt2": GPT2,
    "exact gelu": GPT2.with_(feed_forward="gelu_exact"),
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
def _split_all(monkeypatch):
    """Split small matrices, too."""
    monkeypatch.setattr(cpu_step, "MIN_SIZE", 0)
    monkeypatch.setattr(cpu_step, "MIN_BLOCKS", 4)


@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize("out", [3, 16, 37, 101])
def test_a_matrix_in_blocks_gives_the_product_of_the_matrix(rows, out):
    x, weight, bias = torch.randn(rows, 13).double(), torch.randn(out, 13).double(), torch.randn(out).double()
    torch.testing.assert_close(BlockedLinear(weight, bias)(x), F.linear(x, weight, bias))
    torch.testing.assert_close(BlockedLinear(weight)(x), F.linear(x, weight))


def test_no_weight_is_copied():
    weight = torch.randn(37, 13)
    linear = BlockedLinear(weight)
    assert linear.is_split == torch.backends.mkl.is_available()
    if linear.is_split:
        assert linear.blocks.data_ptr() == weight.data_ptr()


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("batch", [1, 3])
def test_scores_are_the_scores_of_the_modules(name, batch):
    model = model_of(CONFIGS[name])
    ids = torch.randint(0, 101, (batch, 13))
    with torch.inference_mode():
        assert CPUStep.supports(model, batch)
        step, cache = CPUStep(model), model.cache(batch)
        model.hidden(ids[:, :7], cache=cache)
        for t in range(7, 13):
            torch.testing.assert_close(step(ids[:, t], cache), model(ids[:, : t + 1])[:, -1])
        assert cache.length == 13


@pytest.mark.parametrize("name", CONFIGS)
def test_rows_that_start_later_see_only_their_own_tokens(name):
    model, starts = model_of(CONFIGS[name]), [0, 5, 2]
    ids = torch.randint(0, 101, (3, 13))
    with torch.inference_mode():
        step, cache = CPUStep(model), model.cache(3)
        places = torch.arange(11) - torch.tensor(starts)[:, None]
        model.hidden(ids[:, :11], cache=cache, mask=regard.padding(places >= 0), positions=places.clamp(min=0))
        for t in (11, 12):
            alone = [model(ids[b : b + 1, s : t + 1])[0, -1] for b, s in enumerate(starts)]
            torch.testing.assert_close(step(ids[:, t], cache, starts), torch.stack(alone))


def test_weights_changed_in_place_are_used():
    model, ids = model_of(LLAMA), torch.randint(0, 101, (1, 7))
    with torch.inference_mode(), torch.no_grad():
        step, cache = CPUStep(model), model.cache()
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
        model.hidden(ids[:, :6], cache=cache)
        torch.testing.assert_close(step(ids[:, 6], cache), model(ids)[:, -1])


def test_hooks_traces_observers_and_autocast_need_the_modules():
    model = model_of(GPT2)
    assert CPUStep.supports(model, 1)
    for module in (model, model.blocks[1], model.blocks[0].feed_forward.up, model.final_norm):
        handle = module.register_forward_hook(lambda *_: None)
        assert not CPUStep.supports(model, 1)
        handle.remove()
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    assert not CPUStep.supports(model, 1)
    handle.remove()
    with regard.trace():
        assert not CPUStep.supports(model, 1)
    with regard.watch(model):
        model(torch.tensor([[5, 6]]))
        assert not CPUStep.supports(model, 1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not CPUStep.supports(model, 1)
    assert CPUStep.supports(model, 1)


def test_other_modules_dtypes_and_large_batches_need_the_modules():
    assert not CPUStep.supports(model_of(GPT2, torch.bfloat16), 1)
    assert not CPUStep.supports(model_of(GPT2), cpu_step.MAX_BATCH + 1)
    model = model_of(GPT2)
    model.blocks[0].feed_forward.up = nn.Sequential(model.blocks[0].feed_forward.up)
    assert not CPUStep.supports(model, 1)
    model = model_of(GPT2)
    nn.utils.parametrizations.weight_norm(model.blocks[0].attention.out_proj)
    assert not CPUStep.supports(model, 1)
    model = model_of(GPT2)
    model.final_norm.forward = lambda x: x
    assert not CPUStep.supports(model, 1)

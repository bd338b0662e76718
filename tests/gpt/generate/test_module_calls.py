"""A model is unmodified until a hook is added, a module is replaced or wrapped, or a setting is changed."""

import gc
import weakref

import pytest
import torch
from torch import nn

import regard
from regard.attention.layer import MultiHeadAttention
from regard.attention.positions import Rotary
from regard.gpt import GPT, GPTConfig
from regard.gpt.generate.module_calls import is_unmodified, model_fingerprint, needs_module_calls

GPT2 = GPTConfig(vocab_size=53, context_length=29, num_layers=3, d_model=24, num_heads=3, dropout=0.2)
LLAMA = GPT2.with_(
    num_kv_heads=1, d_ff=31, rotary=Rotary(), norm="rms", feed_forward="swiglu", qkv_bias=False, bias=False, tied=False,
    qk_norm=True, window=7,
)  # fmt: skip


class LoRA(nn.Linear):
    """An adapter that is a linear layer and something more."""


class Mine(GPT):
    """A model of somebody's own."""


def in_place_of(model, name, make):
    """Put another module where one was."""
    parent, _, last = name.rpartition(".")
    setattr(model.get_submodule(parent), last, make(model.get_submodule(name)))


def wider(model):
    model.token_embedding = nn.Embedding(54, 24)


def longer(model):
    model.position_embedding = nn.Embedding(31, 24)


def other_attention(**options):
    def change(model):
        model.blocks[1].attention = MultiHeadAttention(24, 24, 29, 0.2, 3, True, **options)

    return change


def moved(model):
    model.blocks[2].feed_forward.down.to("meta")


MODIFICATIONS = {
    "a hook": lambda m: m.blocks[1].feed_forward.up.register_forward_hook(print),
    "a hook on a norm": lambda m: m.blocks[1].attention_norm.register_forward_hook(print),
    "a hook before": lambda m: m.final_norm.register_forward_pre_hook(print),
    "a hook on all of it": lambda m: m.register_forward_hook(print),
    "forward replaced": lambda m: setattr(m.blocks[0].feed_forward, "forward", lambda x: x),
    "a norm's forward replaced": lambda m: setattr(m.final_norm, "forward", lambda x: x),
    "score replaced": lambda m: setattr(m, "score", lambda x: x),
    "a parametrized linear layer": lambda m: nn.utils.parametrizations.weight_norm(m.blocks[0].attention.out_proj),
    "a parametrized norm": lambda m: nn.utils.parametrize.register_parametrization(m.final_norm, "weight",
        nn.Identity()),
    "an adapter": lambda m: in_place_of(m, "blocks.0.attention.W_query", lambda old: LoRA(24, 24)),
    "a wrapped layer": lambda m: in_place_of(m, "blocks.0.feed_forward.up", nn.Sequential),
    "a wrapped block": lambda m: in_place_of(m, "blocks.1", nn.Sequential),
    "another norm": lambda m: in_place_of(m, "blocks.1.attention_norm", lambda old: nn.RMSNorm(24, eps=1e-5)),
    "a norm without weights": lambda m: in_place_of(m, "final_norm", lambda old: nn.LayerNorm(24,
        elementwise_affine=False)),
    "another eps": lambda m: setattr(m.blocks[2].feed_forward_norm, "eps", 1e-3),
    "a wider vocabulary": wider,
    "more positions": longer,
    "a wider feed-forward": lambda m: in_place_of(m, "blocks.0.feed_forward.up", lambda old: nn.Linear(24, 97)),
    "a layer without its bias": lambda m: in_place_of(m, "blocks.0.feed_forward.up", lambda old: nn.Linear(24, 96,
        bias=False)),
    "attention that sees the future": other_attention(causal=False),
    "attention with slopes": other_attention(alibi=True),
    "attention with another scale": other_attention(scale=0.7),
    "attention with other heads": lambda m: setattr(m.blocks[0].attention, "num_heads", 6),
    "an embedding that keeps its length": lambda m: setattr(m.token_embedding, "max_norm", 1.0),
    "another activation": lambda m: setattr(m.blocks[1].feed_forward, "kind", "swiglu"),
    "half a block": lambda m: in_place_of(m, "blocks.1", lambda old: old.attention),
    "two dtypes": lambda m: m.blocks[1].double(),
    "two devices": moved,
}  # fmt: skip


@pytest.mark.parametrize("config", [GPT2, LLAMA, GPTConfig.preset("tiny")], ids=["gpt2", "llama", "tiny"])
def test_a_model_is_unmodified_as_built_whatever_its_weights(config):
    model = GPT(config)
    assert is_unmodified(model)
    for change in (model.eval, model.double, model.requires_grad_):
        change()
        assert is_unmodified(model)
    model.load_state_dict(GPT(config).double().state_dict())
    model.dropout.p = 0.0
    model.name = "mine"
    assert is_unmodified(model)


@pytest.mark.parametrize("how", MODIFICATIONS)
def test_every_modification_is_detected(how):
    model = GPT(GPT2)
    first = model_fingerprint(model)
    MODIFICATIONS[how](model)
    assert not is_unmodified(model)
    assert model_fingerprint(model) != first


def test_fingerprints_are_equal_until_something_moves():
    model = GPT(GPT2)
    first, weight = model_fingerprint(model), model.blocks[1].attention.out_proj.weight
    with torch.no_grad():
        weight.fill_(7.0)
    handle = model.blocks[1].register_forward_hook(print)
    assert model_fingerprint(model) != first
    handle.remove()
    model.load_state_dict(GPT(GPT2).state_dict())
    model.train()
    model.eval()
    model.train()
    assert model_fingerprint(model) == first
    kept = weight.data
    for other in (kept.clone(), kept.mT, kept.double(), kept[:-1]):  # elsewhere, otherwise, as something else, less
        weight.data = other
        assert model_fingerprint(model) != first
        weight.data = kept
        assert model_fingerprint(model) == first
    model.load_state_dict(GPT(GPT2).state_dict(), assign=True)
    assert model_fingerprint(model) != first


def test_a_fingerprint_keeps_nothing_of_the_model():
    model = GPT(GPT2)
    model.owner = lambda: model
    result, parts = model_fingerprint(model), [weakref.ref(part) for part in (*model.modules(), *model.parameters())]
    del model
    gc.collect()
    assert result
    assert not any(part() for part in parts)


def test_a_model_of_another_kind_is_none_of_ours():
    assert not is_unmodified(Mine(GPT2))


def test_module_calls_are_needed_only_during_an_observation():
    model = GPT(GPT2)
    assert not needs_module_calls()
    with regard.trace():
        assert needs_module_calls()
    with regard.watch(model):
        model(torch.tensor([[5, 6]]))
        assert needs_module_calls()
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    assert needs_module_calls()
    handle.remove()
    assert not needs_module_calls()


def test_modules_are_compared_with_the_config_of_now():
    model = GPT(GPT2)
    model.config = GPT2.with_(end=5, dropout=0.0)
    assert is_unmodified(model)
    model.config = GPT2.with_(vocab_size=54)
    assert not is_unmodified(model)
    wider(model)
    state = torch.get_rng_state()
    assert is_unmodified(model)
    assert torch.equal(state, torch.get_rng_state())

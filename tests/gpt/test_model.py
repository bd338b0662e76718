"""GPT itself: what goes in, what comes out, and what it starts from."""

import math

import numpy as np
import pytest
import torch

import regard
from regard import GPT, GPTConfig, Rotary

GPT2 = GPTConfig(vocab_size=97, context_length=23, num_layers=2, d_model=30, num_heads=3)
LLAMA = GPT2.with_(
    num_heads=5, num_kv_heads=1, d_ff=41, rotary=Rotary(), norm="rms", feed_forward="swiglu", qkv_bias=False,
    bias=False, tied=False,
)  # fmt: skip
FAMILIES = {"gpt2": GPT2, "llama": LLAMA, "a window and normed heads": LLAMA.with_(window=5, qk_norm=True)}
families = pytest.mark.parametrize("config", FAMILIES.values(), ids=FAMILIES)


def built(config):
    """A model whose every weight matters."""
    torch.manual_seed(11)
    model = GPT(config).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model


def some_ids(*shape):
    return torch.randint(97, shape, generator=torch.Generator().manual_seed(7))


@pytest.mark.parametrize(
    ("preset", "count"),
    [
        ("gpt2-small", 124_439_808),
        ("gpt2-medium", 354_823_168),
        ("gpt2-large", 774_030_080),
        ("gpt2-xl", 1_557_611_200),
    ],
)
def test_presets_have_openais_counts(preset, count):
    with torch.device("meta"):
        assert regard.count_parameters(GPT(preset)) == count


@families
def test_a_changed_token_changes_nothing_before_it(config):
    model, ids = built(config), some_ids(2, 19)
    other = ids.clone()
    other[:, 13] = (ids[:, 13] + 1) % 97
    with torch.no_grad():
        one, changed = model(ids), model(other)
    torch.testing.assert_close(changed[:, :13], one[:, :13], rtol=0, atol=0)
    assert (changed[:, 13] != one[:, 13]).any(-1).all()


@families
def test_a_text_read_in_parts_is_scored_as_the_whole(config):
    model, ids = built(config), some_ids(2, 19)
    cache = model.cache(batch=2, capacity=19)
    with torch.no_grad():
        parts = [model(part, cache=cache) for part in ids.split([7, 1, 11], dim=1)]
        torch.testing.assert_close(torch.cat(parts, dim=1), model(ids))
    assert cache.length == 19


@families
def test_the_loss_is_that_of_all_logits(config):
    model, ids = built(config), some_ids(2, 20)
    expected = torch.nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    torch.testing.assert_close(model.loss(ids[:, :-1], ids[:, 1:]), expected)


@families
def test_shapes_alone_cost_nothing(config):
    with torch.device("meta"):
        model = GPT(config)
        ids = torch.zeros(3, 19, dtype=torch.long)
        assert model(ids).shape == (3, 19, 97)
        assert model.loss(ids, ids).shape == ()


def test_autocast_carries_16_bits_and_norms_in_32():
    model, ids = GPT(GPT2).eval(), some_ids(2, 19)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        seen = []
        model.blocks[1].register_forward_pre_hook(lambda module, args: seen.append(args[0].dtype))
        model.final_norm.register_forward_pre_hook(lambda module, args: seen.append(args[0].dtype))
        model(ids)
    assert seen == [torch.bfloat16, torch.float32]


def test_training_starts_as_gpt2s_did():
    torch.manual_seed(3)
    model = GPT(GPT2.with_(d_model=192, num_heads=6, vocab_size=997))
    small = 0.02 / math.sqrt(2 * 2)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            torch.testing.assert_close(parameter, torch.full_like(parameter, float("norm.weight" in name)))
            continue
        expected = small if name.endswith(("out_proj.weight", "down.weight")) else 0.02
        expected = 0.01 if name == "position_embedding.weight" else expected
        torch.testing.assert_close(parameter.std().item(), expected, rtol=0.05, atol=0)


def test_positions_may_start_as_waves_as_long_as_the_token_vectors():
    model = GPT(GPT2)
    others = {name: p.clone() for name, p in model.named_parameters() if name != "position_embedding.weight"}
    model.start_sinusoidal()
    start = model.position_embedding.weight
    torch.testing.assert_close(start / start[0, 1], regard.sinusoidal(23, 30))
    torch.testing.assert_close(start.norm(dim=1), torch.full((23,), 0.02 * math.sqrt(30)))
    for name, was in others.items():
        torch.testing.assert_close(model.get_parameter(name), was, rtol=0, atol=0)
    with pytest.raises(
        ValueError, match="this model has rotary positions; there is no position embedding to initialise"
    ):
        GPT(LLAMA).start_sinusoidal()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("One day", r"not str; one text is torch\.tensor\(\[model\.tokenizer\.encode\(text\)\]\)$"),
        ([[5, 6, 7]], r"not list; pass torch\.tensor\(ids\)$"),
        (np.array([[5, 6, 7]]), r"not ndarray; pass torch\.as_tensor\(ids\)$"),
    ],
    ids=["words", "a list", "an array"],
)
def test_a_text_that_is_no_tensor_is_told_how_to_become_one(text, message, without_shape_checks):
    message = r"ids must be a tensor of shape \(B, T\), " + message
    with pytest.raises(ValueError, match=message):
        GPT(GPT2)(text)


def test_a_tied_head_is_the_embedding_and_an_untied_one_is_not():
    tied, free = GPT(GPT2), GPT(LLAMA)
    assert tied.head_weight is tied.token_embedding.weight
    assert free.head_weight is not free.token_embedding.weight


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (torch.zeros(5, dtype=torch.long),
            r"ids must be whole numbers of shape \(B, T\), but are int64 of shape \(5,\)"),
        (torch.zeros(1, 5), r"but are float32 of shape \(1, 5\); one text is"),
        (torch.zeros(1, 24, dtype=torch.long),
            r"24 tokens do not fit context_length=23; pass at most 23, or build the model with"),
        (torch.tensor([[5, 97]]), r"token id 97 is not among this model's 97 \(0 to 96\); was the text tokenised for"),
        (torch.tensor([[-1, 5]]), r"token id -1 is not among this model's 97"),
    ],
)  # fmt: skip
def test_what_is_no_text_is_refused(ids, message, without_shape_checks):
    with pytest.raises(ValueError, match=message):
        GPT(GPT2)(ids)


def test_nothing_read_is_nothing_scored():
    model = GPT(GPT2)
    assert model(torch.zeros(0, 5, dtype=torch.long)).shape == (0, 5, 97)
    assert model(torch.zeros(3, 0, dtype=torch.long)).shape == (3, 0, 97)


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_models_of_two_sizes_compile_in_one_process():
    torch._dynamo.reset()
    for config in (GPT2, GPT2.with_(d_model=42, num_layers=1), LLAMA):
        model, ids = built(config), some_ids(2, 20)
        options = ids[:, :-1], ids[:, 1:]
        result = torch.compile(model.loss, backend="aot_eager")(*options)
        torch.testing.assert_close(result, model.loss(*options))


def test_the_part_of_one_layer_is_no_cache_and_an_array_no_prompt(without_shape_checks):
    model = GPT(GPT2)
    with pytest.raises(
        ValueError, match=r"is the part of one layer; pass the whole cache, as model\.cache\(\) makes it"
    ):
        model(some_ids(1, 3), cache=model.cache()[0])
    with pytest.raises(ValueError, match=r"or a list of either, not ndarray; pass a NumPy array as torch\.as_tensor"):
        model.generate(some_ids(1, 3)[0].numpy(), 2)


@pytest.mark.parametrize("config", [768, {"d_model": 768}, None])
def test_what_is_no_config_is_refused_with_what_is(config, without_shape_checks):
    message = (
        rf"^GPT takes a GPTConfig or the name of a preset, not {type(config).__name__}; write GPT\('tiny'\) or GPT\("
    )
    with pytest.raises(ValueError, match=message):
        GPT(config)

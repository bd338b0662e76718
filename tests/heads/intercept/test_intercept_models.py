"""Models of transformers and x-transformers, watched: same outputs, and the weights of their own eager code."""

import pytest
import torch

import regard
from heads import models
from heads.models import assert_weights, calls, eager, ids, lse_of, watched

LEFT = torch.tensor([[1, 1, 1, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1, 1]])
PADDED = {"unpadded": None, "padded left": LEFT, "padded right": LEFT.flip(1)}


@pytest.mark.parametrize("padding", PADDED)
@pytest.mark.parametrize("name", ["gpt2", "llama", "qwen", "mistral", "bert"])
@torch.no_grad()
def test_a_watched_model_computes_the_same_and_shows_its_eager_weights(name, padding):
    model, x, mask = getattr(models, name)(), ids(), PADDED[padding]
    unwatched = model(input_ids=x, attention_mask=mask)
    out, reports = watched(model, input_ids=x, attention_mask=mask)
    assert torch.equal(out[0], unwatched[0])
    expected = eager(model, input_ids=x, attention_mask=mask).attentions
    assert [(forward, layer) for forward, layer, _ in reports] == [(0, 0), (0, 1)]
    for call, weights in zip(calls(reports), expected, strict=True):
        assert_weights(call, weights)
        assert torch.equal(call.origin.tokens, x)
        assert call.origin.real is None or torch.equal(
            call.origin.real, torch.ones_like(x).bool() if mask is None else mask.bool()
        )
        assert mask is None or call.origin.real is not None


@pytest.mark.parametrize("name", ["bart", "t5"])
@torch.no_grad()
def test_an_encoder_and_a_decoder_are_each_about_their_own_text(name):
    model, x, y = getattr(models, name)(), ids(2, 7), ids(2, 5)
    inputs = {"input_ids": x, "attention_mask": PADDED["padded right"], "decoder_input_ids": y}
    unwatched = model(**inputs)
    out, reports = watched(model, **inputs)
    assert torch.equal(out[0], unwatched[0])
    found = eager(model, **inputs)
    within, across = found.decoder_attentions, found.cross_attentions
    order = [*found.encoder_attentions, *(w for pair in zip(within, across, strict=True) for w in pair)]
    for call, weights in zip(calls(reports), order, strict=True):
        assert_weights(call, weights)
    reading = [None if call.origin.tokens is None else call.origin.tokens.tolist() for call in calls(reports)]
    assert reading == [x.tolist(), x.tolist(), *([y.tolist(), None] * 2)]
    real = [[5, 5] if call.origin.real is None else call.origin.real.sum(-1).tolist() for call in calls(reports)]
    assert real == [[7, 4], [7, 4], *([[5, 5]] * 4)]


@torch.no_grad()
def test_an_image_has_no_tokens():
    model, pixels = models.vit(), torch.randn(2, 3, 12, 12)
    unwatched = model(pixels)
    out, reports = watched(model, pixels)
    assert torch.equal(out[0], unwatched[0])
    for call, weights in zip(calls(reports), eager(model, pixel_values=pixels).attentions, strict=True):
        assert_weights(call, weights)
        assert (call.origin.tokens, call.origin.real) == (None, None)


@pytest.mark.parametrize("name", ["gpt2", "llama", "mistral", "bert", "t5"])
@torch.no_grad()
def test_eager_attention_is_seen_as_the_weights_it_writes_out(name):
    model, x = getattr(models, name)(), ids()
    model.set_attn_implementation("eager")
    inputs = {"input_ids": x, **({"decoder_input_ids": ids(2, 5)} if name == "t5" else {})}
    expected = model(**inputs, output_attentions=True)
    out, reports = watched(model, **inputs)
    assert torch.equal(out[0], expected[0])
    if name == "t5":
        within, across = expected.decoder_attentions, expected.cross_attentions
        order = [*expected.encoder_attentions, *(w for pair in zip(within, across, strict=True) for w in pair)]
    else:
        order = expected.attentions
    for call, weights in zip(calls(reports), order, strict=True):
        assert torch.equal(call.attention.weights, weights)


def test_gradients_are_the_same_when_watched():
    model, x = models.llama(), ids()
    model(x, labels=x).loss.backward()
    expected = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    out, reports = watched(model, x, labels=x)
    out.loss.backward()
    assert all(torch.equal(p.grad, expected[name]) for name, p in model.named_parameters())
    assert not any(t.requires_grad for call in calls(reports) for t in (call.attention.q, call.attention.k))


def test_dropout_draws_the_same_numbers_and_weights_are_those_before_it():
    model, x = models.gpt2().train(), ids()
    torch.manual_seed(5)
    expected = model(x).logits
    torch.manual_seed(5)
    out, reports = watched(model, x)
    assert torch.equal(out.logits, expected)
    for call in calls(reports):
        torch.testing.assert_close(models.weights_of(call).sum(-1), torch.ones(2, 3, 7, dtype=torch.float64))


@pytest.mark.parametrize("name", ["gpt2", "llama"])
@torch.no_grad()
def test_the_lse_of_the_kernel_is_reported(name):
    _, reports = watched(getattr(models, name)(), ids())
    for call in calls(reports):
        torch.testing.assert_close(call.lse.double(), lse_of(call), rtol=0, atol=1e-5)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # on import
@torch.no_grad()
def test_x_transformers_is_seen_fused_and_written_out():
    from x_transformers import Decoder, TransformerWrapper

    def made(flash):
        sizes = {"dim": 32, "depth": 2, "heads": 4, "attn_dim_head": 8, "attn_flash": flash, "rotary_pos_emb": True}
        return TransformerWrapper(num_tokens=53, max_seq_len=64, attn_layers=Decoder(**sizes)).eval()

    fused, written = made(True), made(False)
    written.load_state_dict(fused.state_dict())
    x, mask = ids(), LEFT.flip(1).bool()
    logits, expected = written(x, mask=mask, return_attn=True)
    for model, unwatched in ((fused, fused(x, mask=mask)), (written, logits)):
        out, reports = watched(model, x, mask=mask, padding=mask)
        assert torch.equal(out, unwatched)
        for call, weights in zip(calls(reports), expected, strict=True):
            assert_weights(call, weights)
            assert torch.equal(call.origin.tokens, x)


def test_a_watch_leaves_transformers_as_it_found_it():
    from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel

    def registered():
        return sorted(AttentionInterface()), sorted(AttentionMaskInterface()), dict(vars(PreTrainedModel))

    before = registered()
    model = models.gpt2()
    with regard.watch(model):
        model(ids())
    assert registered() == before


SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 53}
CHOSEN = {  # models whose attention cannot be chosen freely: the implementation, and their sizes
    "GptOss": (
        "eager",
        SMALL | {"num_key_value_heads": 2, "intermediate_size": 48, "head_dim": 8, "num_local_experts": 4},
    ),
    "Bloom": ("eager", SMALL),
    "Falcon": ("sdpa", SMALL),
    "GPTJ": ("eager", {"n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 8, "vocab_size": 53}),
    "GPTNeo": ("eager", {"hidden_size": 32, "num_layers": 2, "num_heads": 4, "attention_types": [[["global"], 2]]}),
}


@pytest.mark.parametrize("name", CHOSEN)
def test_models_that_choose_their_attention_by_themselves_are_seen(name):
    import transformers

    implementation, sizes = CHOSEN[name]
    config = getattr(transformers, f"{name}Config")(**sizes)
    model = transformers.AutoModel.from_config(config, attn_implementation=implementation)
    assert len(watched(model, ids())[1]) == 2

"""Models of transformers and x-transformers, watched: same outputs, and the weights of their own eager code."""

import pytest
import torch

from heads import models
from heads.models import assert_weights, calls, eager, ids, lse_of, watched
from regard.attention.masks import Causal
from regard.heads.transformers_backend import register

LEFT = torch.tensor([[1, 1, 1, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1, 1]])
PADDED = {"unpadded": None, "padded left": LEFT, "padded right": LEFT.flip(1)}


@pytest.mark.parametrize("padding", PADDED)
@pytest.mark.parametrize("name", ["gpt2", "llama", "qwen", "mistral", "bert"])
@torch.no_grad()
def test_a_watched_model_computes_the_same_and_shows_its_eager_weights(name, padding):
    model, x, mask = getattr(models, name)(), ids(), PADDED[padding]
    unwatched = model(input_ids=x, attention_mask=mask)
    out, told = watched(model, input_ids=x, attention_mask=mask)
    assert torch.equal(out[0], unwatched[0])
    expected = eager(model, input_ids=x, attention_mask=mask).attentions
    assert [(forward, layer) for forward, layer, _ in told] == [(0, 0), (0, 1)]
    for call, weights in zip(calls(told), expected, strict=True):
        assert_weights(call, weights)
        assert torch.equal(call.tokens, x)
        assert call.real is None or torch.equal(call.real, torch.ones_like(x).bool() if mask is None else mask.bool())
        assert mask is None or call.real is not None


@pytest.mark.parametrize("name", ["bart", "t5"])
@torch.no_grad()
def test_an_encoder_and_a_decoder_are_each_about_their_own_text(name):
    model, x, y = getattr(models, name)(), ids(2, 7), ids(2, 5)
    inputs = {"input_ids": x, "attention_mask": PADDED["padded right"], "decoder_input_ids": y}
    unwatched = model(**inputs)
    out, told = watched(model, **inputs)
    assert torch.equal(out[0], unwatched[0])
    found = eager(model, **inputs)
    within, across = found.decoder_attentions, found.cross_attentions
    order = [*found.encoder_attentions, *(w for pair in zip(within, across, strict=True) for w in pair)]
    for call, weights in zip(calls(told), order, strict=True):
        assert_weights(call, weights)
    reading = [None if call.tokens is None else call.tokens.tolist() for call in calls(told)]
    assert reading == [x.tolist(), x.tolist(), *([y.tolist(), None] * 2)]
    real = [[5, 5] if call.real is None else call.real.sum(-1).tolist() for call in calls(told)]
    assert real == [[7, 4], [7, 4], *([[5, 5]] * 4)]


@torch.no_grad()
def test_cross_attention_is_known_by_name_where_both_texts_are_as_long():
    x, y = ids(2, 7), ids(2, 7)
    for name in ("bart", "t5"):
        _, told = watched(getattr(models, name)(), input_ids=x, decoder_input_ids=y)
        read = [call.tokens is not None and call.tokens.tolist() for call in calls(told)]
        assert read == [x.tolist(), x.tolist(), *([y.tolist(), False] * 2)]


@torch.no_grad()
def test_a_decoder_whose_text_is_unknown_does_not_borrow_its_encoders():
    for name in ("bart", "t5"):
        inputs = {"input_ids": ids(), "attention_mask": LEFT.flip(1), "decoder_inputs_embeds": torch.randn(2, 7, 32)}
        _, told = watched(getattr(models, name)(), **inputs)
        known = [(call.tokens is not None, call.real is not None and not call.real.all()) for call in calls(told)]
        assert known == [(True, True)] * 2 + [(False, False)] * 4


@torch.no_grad()
def test_an_image_has_no_tokens():
    model, pixels = models.vit(), torch.randn(2, 3, 12, 12)
    unwatched = model(pixels)
    out, told = watched(model, pixels)
    assert torch.equal(out[0], unwatched[0])
    for call, weights in zip(calls(told), eager(model, pixel_values=pixels).attentions, strict=True):
        assert_weights(call, weights)
        assert (call.tokens, call.real) == (None, None)


@pytest.mark.parametrize("name", ["gpt2", "llama", "mistral", "bert", "t5"])
@torch.no_grad()
def test_eager_attention_is_seen_as_the_weights_it_writes_out(name):
    model, x = getattr(models, name)(), ids()
    model.set_attn_implementation("eager")
    inputs = {"input_ids": x, **({"decoder_input_ids": ids(2, 5)} if name == "t5" else {})}
    expected = model(**inputs, output_attentions=True)
    out, told = watched(model, **inputs)
    assert torch.equal(out[0], expected[0])
    if name == "t5":
        within, across = expected.decoder_attentions, expected.cross_attentions
        order = [*expected.encoder_attentions, *(w for pair in zip(within, across, strict=True) for w in pair)]
    else:
        order = expected.attentions
    for call, weights in zip(calls(told), order, strict=True):
        assert torch.equal(call.weights, weights)


def test_modules_are_named_and_counted():
    model, told = models.gpt2(), []
    with models.intercept(model, lambda *what: told.append(what)) as forwards:
        model(ids())
        assert (forwards.count, forwards.calls) == (1, 2)
        model(ids())
    assert (forwards.count, forwards.calls) == (2, 4)
    names = [(forward, layer, call.module) for forward, layer, call in told]
    assert names == [(f, i, f"transformer.h.{i}.attn") for f in (0, 1) for i in (0, 1)]
    assert all(isinstance(call.mask, Causal) for call in calls(told))


def test_gradients_flow_as_if_nobody_looked():
    model, x = models.llama(), ids()
    model(x, labels=x).loss.backward()
    expected = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    out, told = watched(model, x, labels=x)
    out.loss.backward()
    assert all(torch.equal(p.grad, expected[name]) for name, p in model.named_parameters())
    assert not any(t.requires_grad for call in calls(told) for t in (call.q, call.k))


def test_dropout_draws_the_same_numbers_and_weights_are_those_before_it():
    model, x = models.gpt2().train(), ids()
    torch.manual_seed(5)
    expected = model(x).logits
    torch.manual_seed(5)
    out, told = watched(model, x)
    assert torch.equal(out.logits, expected)
    for call in calls(told):
        torch.testing.assert_close(models.weights_of(call).sum(-1), torch.ones(2, 3, 7, dtype=torch.float64))


@pytest.mark.parametrize("name", ["gpt2", "llama"])
@torch.no_grad()
def test_the_kernel_hands_out_its_lse(name):
    _, told = watched(getattr(models, name)(), ids())
    for call in calls(told):
        torch.testing.assert_close(call.lse.double(), lse_of(call), rtol=0, atol=1e-5)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("padding", [None, LEFT])
@pytest.mark.parametrize("name", ["gpt2", "llama", "mistral"])
def test_generation_goes_on_with_the_text(name, padding, cache):
    model, x = getattr(models, name)(), ids()
    how = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False, "cache_implementation": cache}
    how["attention_mask"] = torch.ones_like(x) if padding is None else padding
    expected = model.generate(x, **how)
    out, told = watched(model, x, run=model.generate, **how)
    assert torch.equal(out, expected)
    assert [(forward, layer) for forward, layer, _ in told] == [(f, i) for f in range(4) for i in range(2)]
    mask = torch.nn.functional.pad(how["attention_mask"], (0, 4), value=1)
    for forward, layer, call in told:
        size = 7 + forward
        window = 3 if name == "mistral" and forward else size  # its cache keeps no more
        assert call.sizes[2:] == (1 if forward else 7, window)
        assert torch.equal(call.tokens, out[:, size - window : size])
        places = (mask[:, :size].cumsum(-1) - 1).clamp(min=0)  # as generate() counts them
        whole = eager(model, input_ids=out[:, :size], attention_mask=mask[:, :size], position_ids=places)
        weights = whole.attentions[layer]
        assert_weights(call, weights[:, :, -call.sizes[2] :, -window:])


@torch.no_grad()
def test_a_prompt_may_be_read_in_pieces():
    model, x = models.llama(), ids(2, 11)
    told = []
    with models.intercept(model, lambda *what: told.append(what)):
        first = model(x[:, :6], use_cache=True)
        model(x[:, 6:], past_key_values=first.past_key_values)
        model(x[:, :6])
    expected = eager(model, input_ids=x).attentions
    for call, start, end in zip(calls(told)[::2], (0, 6, 0), (6, 11, 6), strict=True):
        assert torch.equal(call.tokens, x[:, :end])
        assert_weights(call, expected[0][:, :, start:end, :end])


@pytest.mark.parametrize("name", ["gpt2", "llama", "mistral", "bert", "t5"])
@torch.no_grad()
def test_the_ecosystems_own_way_is_sdpa_bit_for_bit(name):
    register()
    register()
    model, x = getattr(models, name)(), ids()
    inputs = {"input_ids": x, "attention_mask": LEFT, **({"decoder_input_ids": ids(2, 5)} if name == "t5" else {})}
    expected = model(**inputs)[0]
    _, told_before = watched(model, **inputs)
    model.set_attn_implementation("regard")
    assert torch.equal(model(**inputs)[0], expected)
    out, told = watched(model, **inputs)
    assert torch.equal(out[0], expected)
    for ours, theirs in zip(calls(told), calls(told_before), strict=True):
        assert torch.equal(models.weights_of(ours), models.weights_of(theirs))


def test_a_model_can_be_made_with_it():
    from transformers import AutoModel, LlamaConfig

    register()
    model = AutoModel.from_config(LlamaConfig(**models.small()), attn_implementation="regard")
    assert len(watched(model, ids())[1]) == 2


@pytest.mark.parametrize("name", ["GptOss", "Bloom"])
def test_a_model_that_transformers_does_not_run_by_sdpa_is_refused(name):
    import transformers

    register()
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 53}
    more = {"num_key_value_heads": 2, "intermediate_size": 48, "head_dim": 8, "num_local_experts": 4}
    config = getattr(transformers, f"{name}Config")(**sizes, **(more if name == "GptOss" else {}))
    model = transformers.AutoModel.from_config(config, attn_implementation="regard")
    message = rf'{name}Model cannot run with this attention.*use attn_implementation="eager", which regard\.watch'
    with pytest.raises(ValueError, match=message):
        model(ids())
    model = transformers.AutoModel.from_config(config, attn_implementation="eager")
    assert len(watched(model, ids())[1]) == 2


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
        out, told = watched(model, x, mask=mask, padding=mask)
        assert torch.equal(out, unwatched)
        for call, weights in zip(calls(told), expected, strict=True):
            assert_weights(call, weights)
            assert torch.equal(call.tokens, x)

"""Generation: the same text as transformers, alone and in a batch, in one go and piece by piece; and where it ends."""

import math

import pytest
import torch
from torch import nn

import regard
from helpers import says_it_ourselves
from regard.gpt import GPT, GPTConfig
from regard.gpt.generate import cpu_step
from regard.gpt.generate.generate import EagerDecoder, decode, decoder_for, prefill
from regard.gpt.generate.options import SamplingOptions
from regard.gpt.tokenizer.tokenizer import Tokenizer

V = 283
PROMPTS = [[5, 6, 7, 8, 9, 10, 11], [251, 3, 99], [17], [44, 45, 46, 47, 48]]
SAMPLED = {"temperature": 1.3, "top_k": 41, "top_p": 0.9}


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(["the cat sat on the mat, the cat sat on the hat → naïve"] * 3, vocab_size=V)


@pytest.fixture(scope="module", params=["gpt2", "gpt2 with exact gelu", "llama"])
def both(request, tmp_path_factory):
    """A tiny transformers model with random weights, and ours loaded from its files."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(3)
    options = {"vocab_size": V, "initializer_range": 0.4, "bos_token_id": None, "eos_token_id": None}
    if request.param.startswith("gpt2"):
        activation = "gelu" if "exact" in request.param else "gelu_new"
        config = transformers.GPT2Config(
            n_positions=61, n_embd=20, n_layer=2, n_head=5, activation_function=activation, **options
        )
        theirs = transformers.GPT2LMHeadModel(config)
    else:
        config = transformers.LlamaConfig(
            max_position_embeddings=61, hidden_size=40, num_hidden_layers=2, num_attention_heads=10,
                intermediate_size=28,
            num_key_value_heads=2, tie_word_embeddings=False, **options,
        )  # fmt: skip
        theirs = transformers.LlamaForCausalLM(config)
    directory = tmp_path_factory.mktemp(request.param)
    theirs.eval().save_pretrained(directory)
    return GPT.from_pretrained(directory), theirs


@pytest.fixture(scope="module")
def model(tokenizer):
    """A model that says different things, sometimes its end token, and can read."""
    torch.manual_seed(5)
    model = GPT(GPTConfig(vocab_size=V, context_length=53, num_layers=2, d_model=24, num_heads=3)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.5)
    model.tokenizer = tokenizer
    return model


def theirs_say(theirs, ids, mask=None, n=19):
    ids = torch.as_tensor(ids)
    mask = torch.ones_like(ids) if mask is None else mask
    out = theirs.generate(ids, attention_mask=mask, max_new_tokens=n, min_new_tokens=n, do_sample=False, pad_token_id=0)
    return out[:, ids.shape[1] :].tolist()


@pytest.mark.parametrize("prompt", PROMPTS, ids=len)
def test_greedy_text_is_transformers_token_for_token(both, prompt):
    ours, theirs = both
    result = ours.generate(prompt, 19, temperature=0)
    assert len(set(result)) > 5  # a text that only repeats itself would prove little
    assert result == theirs_say(theirs, [prompt])[0]


def test_a_padded_batch_is_transformers_token_for_token(both):
    ours, theirs = both
    size = max(map(len, PROMPTS))
    left = torch.tensor([[0] * (size - len(p)) + p for p in PROMPTS])
    mask = torch.tensor([[0] * (size - len(p)) + [1] * len(p) for p in PROMPTS])
    expected = theirs_say(theirs, left, mask)
    assert ours.generate(left, 19, temperature=0, mask=mask) == expected
    assert ours.generate(PROMPTS, 19, temperature=0) == expected


@pytest.mark.parametrize("size", [55, 61])
def test_the_context_is_filled_as_far_as_transformers_fills_it(both, size):
    ours, theirs = both
    prompt = torch.randint(0, V, (1, size))
    assert ours.generate(prompt, 99, temperature=0) == theirs_say(theirs, prompt, n=62 - size)


@pytest.mark.parametrize("fast", [True, False])
def test_prompts_in_a_batch_give_the_texts_they_give_alone(both, fast, monkeypatch):
    ours, _ = both
    if not fast:
        monkeypatch.setattr(cpu_step.CPUStep, "supports", lambda model, batch: False)
    alone = [ours.generate(p, 11, temperature=0) for p in PROMPTS]
    assert ours.generate(PROMPTS, 11, temperature=0) == alone
    alone = [ours.generate(p, 11, seed=7 + i, **SAMPLED) for i, p in enumerate(PROMPTS)]
    assert ours.generate(PROMPTS, 11, seed=7, **SAMPLED) == alone


def test_padding_on_the_right_is_padding_too(model):
    size = max(map(len, PROMPTS))
    right = torch.tensor([p + [0] * (size - len(p)) for p in PROMPTS])
    mask = torch.tensor([[True] * len(p) + [False] * (size - len(p)) for p in PROMPTS])
    assert model.generate(right, 11, seed=3, mask=mask) == model.generate(PROMPTS, 11, seed=3)


def test_prefill_and_decode_are_the_model_in_two_halves(model):
    ids = torch.randint(0, V, (3, 13))
    with torch.inference_mode():
        cache = model.cache(3, 13)
        torch.testing.assert_close(prefill(model, ids[:, :11], cache), model(ids[:, :11])[:, -1])
        for t in (11, 12):
            torch.testing.assert_close(decode(model, ids[:, t], cache), model(ids[:, : t + 1])[:, -1])
        assert cache.length == 13


def test_pads_change_nothing_for_the_text_behind_them(both):
    ours, _ = both
    ids, starts = torch.randint(0, V, (2, 13)), torch.tensor([4, 0])
    with torch.inference_mode():
        cache = ours.cache(2, 13)
        result = prefill(ours, ids[:, :12], cache, starts), decode(ours, ids[:, 12], cache, starts)
        expected = [torch.cat([ours(ids[:1, 4:t])[:, -1], ours(ids[1:, :t])[:, -1]]) for t in (12, 13)]
    torch.testing.assert_close(result, tuple(expected), atol=1e-4, rtol=1e-4)


def test_the_seed_makes_the_text(model):
    once, again = (model.generate("the cat", 29, seed=7) for _ in range(2))
    assert once == again
    assert model.generate("the cat", 29, seed=8) != once
    torch.manual_seed(1)
    chance = model.generate("the cat", 29)
    assert model.generate("the cat", 29) != chance
    torch.manual_seed(1)
    assert model.generate("the cat", 29) == chance


def test_a_longer_text_begins_with_the_shorter(model):
    assert model.generate([5], 31, seed=7)[:9] == model.generate([5], 9, seed=7)


def test_the_answer_has_the_form_of_the_question(model):
    ids, text = model.generate([5, 6], 3, seed=1), model.generate("the", 3, seed=1)
    assert isinstance(text, str)
    assert len(ids) == 3
    assert model.generate(torch.tensor([5, 6]), 3, seed=1) == ids
    assert model.generate(torch.tensor([[5, 6]]), 3, seed=1) == [ids]
    assert model.generate([[5, 6]], 3, seed=1) == [ids]
    assert model.generate(["the"], 3, seed=1) == [text]
    assert model.generate(torch.zeros(0, 3, dtype=torch.long), 3) == []


def test_texts_are_tokens_read_and_written(model, tokenizer):
    ids = model.generate(tokenizer.encode("the cat"), 17, seed=3)
    assert model.generate("the cat", 17, seed=3) == tokenizer.decode(ids)


def ends_with(model, end):
    """The same model with another end token."""
    ours = GPT(model.config.with_(end=end)).eval()
    ours.load_state_dict(model.state_dict())
    ours.tokenizer = model.tokenizer
    return ours


def test_the_end_token_ends_each_row_by_itself(model):
    long = model.generate(PROMPTS, 31, seed=7)
    end = long[0][12]
    expected = [row[: row.index(end)] if end in row else row for row in long]
    assert len({len(row) for row in expected}) > 1
    ours = ends_with(model, end)
    assert ours.generate(PROMPTS, 31, seed=7) == expected
    stream = ours.stream(PROMPTS[0], 31, seed=7)
    assert (list(stream), stream.reason, stream.tokens) == (expected[0], "end", len(expected[0]) + 1)


def test_any_of_several_end_tokens_ends_a_row(model):
    long = model.generate(PROMPTS, 31, seed=7)
    ends = (long[0][12], long[1][5])
    expected = [row[: min((row.index(end) for end in ends if end in row), default=len(row))] for row in long]
    ours = ends_with(model, ends)
    assert ours.generate(PROMPTS, 31, seed=7) == expected
    assert ours.generate([], 3, seed=7) == ours.generate([ends[0]], 3, seed=7)  # a text begins where another ended


def test_no_token_is_made_once_every_row_has_ended(model, monkeypatch):
    end = model.generate([5], 3, seed=7)[2]
    ours, asked = ends_with(model, end), []
    next_tokens = EagerDecoder.next_tokens
    monkeypatch.setattr(EagerDecoder, "next_tokens", lambda self, n: asked.append(n) or next_tokens(self, n))
    ours.generate([5], 31, seed=7)
    assert len(asked) <= 3


def test_a_stop_string_ends_the_text_before_it_even_across_tokens(model):
    whole = model.generate("the cat", 37, seed=11)
    stop = whole[19:23]
    assert model.generate("the cat", 37, seed=11, stop=stop) == whole[: whole.index(stop)]
    assert model.generate("the cat", 37, seed=11, stop=["never there", stop]) == whole[: whole.index(stop)]
    stream = model.stream("the cat", 37, seed=11, stop=stop)
    assert "".join(stream) == whole[: whole.index(stop)]
    assert stream.reason == "stop"


def test_stop_tokens_end_ids(model):
    whole = model.generate([5], 37, seed=11)
    assert model.generate([5], 37, seed=11, stop=whole[9]) == whole[: whole.index(whole[9])]
    assert model.generate([5], 37, seed=11, stop=[whole[9], whole[4]]) == whole[:4][: whole.index(whole[4])]


def test_a_stream_is_the_text_in_pieces(model):
    stream = model.stream("the cat", 29, seed=7)
    assert (stream.reason, stream.tokens, stream.seconds) == (None, 0, 0.0)
    pieces = list(stream)
    assert len(pieces) > 5
    assert "" not in pieces
    assert "".join(pieces) == model.generate("the cat", 29, seed=7)
    assert (stream.reason, stream.tokens) == ("length", 29)
    assert stream.seconds > 0
    assert next(stream, None) is None


def test_a_stream_of_ids_is_ids(model):
    assert list(model.stream([5, 6], 13, seed=7)) == model.generate([5, 6], 13, seed=7)


def test_a_stream_that_is_left_costs_no_more(model):
    stream = model.stream([5, 6], 13, seed=7)
    assert [next(stream), next(stream)] == model.generate([5, 6], 2, seed=7)
    assert (stream.tokens, stream.reason) == (2, None)


def test_a_full_context_ends_the_text(model):
    prompt = list(range(47))  # of 53
    assert len(model.generate(prompt, 100, seed=1)) == 7  # the last one is chosen and never read
    stream = model.stream(prompt, 100, seed=1)
    assert (len(list(stream)), stream.reason) == (7, "context")
    stream = model.stream(prompt, 7, seed=1)
    assert (len(list(stream)), stream.reason) == (7, "length")
    stream = model.stream(list(range(53)), 6, temperature=0)
    last = model(torch.arange(53)[None])[0, -1].argmax()
    assert (list(stream), stream.reason) == ([last], "context")


def test_near_the_end_of_the_context_rows_still_get_what_they_get_alone(model):
    prompts = [list(range(47)), [5], list(range(30, 77)), [6, 7, 8]]
    alone = [model.generate(p, 40, seed=3 + i) for i, p in enumerate(prompts)]
    assert [len(text) for text in alone] == [7, 40, 7, 40]
    assert model.generate(prompts, 40, seed=3) == alone


def test_an_empty_prompt_starts_from_the_end_token(model):
    ours = ends_with(model, 0)
    assert ours.generate("", 7, seed=1) == ours.tokenizer.decode(ours.generate([0], 7, seed=1))


def test_dropout_sleeps_meanwhile_and_every_part_wakes_as_it_was(model):
    ours = GPT(model.config.with_(dropout=0.5))
    ours.load_state_dict(model.state_dict())
    ours.train()
    ours.blocks[1].eval()
    before = [module.training for module in ours.modules()]
    assert ours.generate([5, 6], 11, temperature=0) == model.generate([5, 6], 11, temperature=0)
    stream = ours.stream([5, 6], 11)
    next(stream)
    assert [module.training for module in ours.modules()] == before
    ours.tokenizer = None
    with pytest.raises(ValueError, match="tokenizer"):
        ours.generate("the", 3)
    assert [module.training for module in ours.modules()] == before


def test_no_gradients_are_kept_and_none_are_lost(model):
    model.generate([5], 3)
    assert torch.is_grad_enabled()
    model(torch.tensor([[5, 6]])).sum().backward()
    assert model.final_norm.weight.grad is not None
    model.zero_grad()


def test_hooks_hear_every_token(model):
    heard = []
    handle = model.blocks[0].feed_forward.up.register_forward_hook(lambda m, args, out: heard.append(args[0].shape[1]))
    whole = []
    outer = model.register_forward_hook(lambda m, args, out: whole.append(out.shape[1]))
    result = model.generate([5, 6, 7], 5, seed=1)
    handle.remove()
    outer.remove()
    assert heard == whole == [3, 1, 1, 1, 1]
    assert result == model.generate([5, 6, 7], 5, seed=1)


def test_watching_sees_generation_token_by_token(model):
    with regard.watch(model) as seen:
        result = model.generate([5, 6, 7], 5, seed=1)
    assert result == model.generate([5, 6, 7], 5, seed=1)
    assert len(list(seen)) == 2  # layers
    assert seen[0].entropy.shape[-1] == 7  # the prompt and what was read back of the answer


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_dtypes_generate_too(model, dtype):
    ours = GPT(model.config).eval()
    ours.load_state_dict(model.state_dict())
    ours.to(dtype)
    assert ours.generate(PROMPTS, 7, temperature=0) == [ours.generate(p, 7, temperature=0) for p in PROMPTS]


def test_many_rows_go_side_by_side(model):
    rows = [[i, i + 1] for i in range(cpu_step.MAX_BATCH + 3)]
    assert model.generate(rows, 7, seed=3) == [model.generate(row, 7, seed=3 + i) for i, row in enumerate(rows)]


def test_a_decoder_makes_as_many_tokens_as_it_is_asked_for(model):
    with torch.inference_mode():
        decoder = decoder_for(model, 2, 20, SamplingOptions(temperature=0), None)
        assert isinstance(decoder, EagerDecoder)
        decoder.prefill(torch.tensor([[5, 6], [0, 7]]), torch.tensor([0, 1]))
        result = torch.cat([decoder.next_tokens(3), decoder.next_tokens(1), decoder.next_tokens(4)])
    assert result.mT.tolist() == model.generate([[5, 6], [7]], 8, temperature=0)


def test_the_cache_is_set_aside_once(model):
    with torch.inference_mode():
        decoder = EagerDecoder(model, 1, 20, SamplingOptions(temperature=0), None)
        decoder.prefill(torch.tensor([[5, 6]]), torch.tensor([0]))
        where = decoder.cache.keys.data_ptr(), decoder.cache.values.data_ptr()
        decoder.next_tokens(7)
    assert (decoder.cache.keys.data_ptr(), decoder.cache.values.data_ptr()) == where
    assert (decoder.cache.capacity, decoder.cache.length) == (20, 8)  # the last token need not be read


def test_scores_that_are_nan_are_an_error():
    ours = GPT(GPTConfig(vocab_size=11, context_length=7, num_layers=1, d_model=4, num_heads=1))
    nn.init.constant_(ours.final_norm.weight, math.nan)
    with pytest.raises(ValueError, match="the model's scores after the prompt are NaN or infinite; are its weights"):
        ours.generate([5], 3)


@pytest.mark.parametrize("weights", ["W_query", "W_key", "W_value"])
@pytest.mark.parametrize("prompt", [[5], [5, 6, 7]])
def test_a_nan_in_one_projection_reaches_the_scores(weights, prompt):
    ours = GPT(GPTConfig(vocab_size=11, context_length=7, num_layers=2, d_model=4, num_heads=1))
    with torch.no_grad():
        getattr(ours.blocks[0].attention, weights).weight[3, 2] = math.nan
    with pytest.raises(ValueError, match="the model's scores after the prompt are NaN or infinite; are its weights"):
        ours.generate(prompt, 3)


@says_it_ourselves
@pytest.mark.parametrize(
    "options, message",
    [
        ({"max_new_tokens": 0}, r"max_new_tokens \(0\) must be a whole number of at least 1"),
        ({"temperature": -1.0}, r"temperature \(-1.0\) must be a number of at least 0"),
        ({"top_k": 0}, r"top_k \(0\) must be a whole number of at least 1"),
        ({"top_p": 2.0}, r"top_p \(2.0\) must be above 0 and at most 1"),
        ({"seed": -7}, r"seed \(-7\) must be a whole number of at least 0"),
        ({"seed": -7, "temperature": 0}, r"seed \(-7\) must be a whole number of at least 0"),
        ({"stop": ""}, "stop holds an empty string"),
        ({"stop": "a"}, r"stop \('a'\) is text, but the prompt is token ids"),
        ({"prompt": list(range(54))}, "54 tokens do not fit context_length=53; give a prompt of at most 53"),
        ({"prompt": [V]}, f"token id {V} is not among this model's {V}"),
        ({"prompt": []}, "the prompt is empty, and this model has no end token to start from"),
    ],
)
def test_what_cannot_be_done_is_told_before_anything_is(model, options, message):
    for go in (model.generate, model.stream):
        with pytest.raises(ValueError, match=message):
            go(**{"prompt": [5], **options})


@says_it_ourselves
def test_a_stream_of_several_texts_is_refused(model):
    with pytest.raises(ValueError, match="a stream is one text, but here are 2 prompts; use generate"):
        model.stream(["the", "cat"])


@pytest.mark.gpu
def test_on_a_gpu_the_text_is_the_one_of_the_cpu(model):
    ours = GPT(model.config).eval()
    ours.load_state_dict(model.state_dict())
    ours.to("cuda")
    assert ours.generate(PROMPTS, 23, temperature=0) == model.generate(PROMPTS, 23, temperature=0)
    assert ours.generate(PROMPTS, 23, seed=7, **SAMPLED) == model.generate(PROMPTS, 23, seed=7, **SAMPLED)
    assert list(ours.stream([5, 6], 9, seed=3)) == model.generate([5, 6], 9, seed=3)

"""Log-probabilities, several samples and scores that break off: what `generate` tells beside the text."""

import math

import pytest
import torch

from helpers import says_it_ourselves
from regard.gpt import GPT, GPTConfig
from regard.gpt.generate import generate
from regard.gpt.generate.generate import log_probabilities
from regard.gpt.tokenizer.tokenizer import Tokenizer

V = 283


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(5)
    model = GPT(GPTConfig(vocab_size=V, context_length=31, num_layers=2, d_model=24, num_heads=3)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.5)
    model.tokenizer = Tokenizer.train(["the cat sat on the mat, the cat sat on the hat"], vocab_size=V)
    return model


@torch.no_grad()
def by_softmax(model, prompt, ids):
    """One full forward for each token, in float64."""
    wide = GPT(model.config).double().eval()
    wide.load_state_dict(model.state_dict())
    values = []
    for i, token in enumerate(ids):
        scores = wide(torch.tensor([prompt + ids[:i]]))[0, -1]
        values.append(math.log(scores.softmax(-1)[token]))
    return values


@pytest.mark.parametrize("at_once", [3, 64])
def test_they_are_the_logarithms_of_the_softmax(model, at_once, monkeypatch):
    monkeypatch.setattr(generate, "AT_ONCE", at_once)
    prompt, ids = [5, 6, 7], [8, 250, 1, 1, 99, 17, 42]
    assert log_probabilities(model, prompt, ids) == pytest.approx(by_softmax(model, prompt, ids), abs=1e-4)
    assert log_probabilities(model, prompt, []) == []


def test_a_text_that_fills_the_context_has_them_all(model):
    (continuation,) = model.generate([[5, 6]], 99, seed=3, logprobs=True)
    assert (len(continuation.ids), continuation.reason) == (30, "context")
    assert continuation.logprobs == pytest.approx(by_softmax(model, [5, 6], continuation.ids), abs=1e-4)


def test_generate_returns_them_with_the_text_and_what_ended_it(model):
    whole = model.generate("the cat", 13, seed=7)
    continuation = model.generate("the cat", 13, seed=7, logprobs=True)
    assert (continuation.text, continuation.reason) == (whole, "length")
    assert model.tokenizer.decode(continuation.ids) == whole
    expected = log_probabilities(model, model.tokenizer.encode("the cat"), continuation.ids)
    assert continuation.logprobs == expected  # whatever the temperature:
    cold = model.generate("the cat", 13, temperature=0.001, seed=7, logprobs=True)
    assert cold.logprobs == log_probabilities(model, model.tokenizer.encode("the cat"), cold.ids)
    assert model.generate([5], 3, temperature=0, logprobs=True).text is None


def test_hooks_have_their_say(model):
    handle = model.register_forward_hook(lambda module, args, out: out.masked_fill(torch.arange(V) != 17, -torch.inf))
    continuation = model.generate([5], 3, seed=1, logprobs=True)
    handle.remove()
    assert (continuation.ids, continuation.logprobs) == ([17] * 3, [0.0] * 3)


def test_samples_are_the_texts_of_the_seeds_that_follow(model):
    alone = [model.generate([5, 6], 7, seed=seed) for seed in range(3, 9)]
    assert model.generate([5, 6], 7, seed=3, samples=6) == alone
    assert model.generate([5, 6], 7, seed=3, samples=1) == alone[:1]
    of_two = model.generate([[5, 6], [7]], 7, seed=3, samples=2)
    assert of_two == [alone[:2], [model.generate([7], 7, seed=seed) for seed in (5, 6)]]
    texts = model.generate("the", 5, seed=3, samples=2, logprobs=True)
    assert [one.text for one in texts] == [model.generate("the", 5, seed=seed) for seed in (3, 4)]


@says_it_ourselves
def test_what_cannot_be_sampled_is_refused(model):
    with pytest.raises(ValueError, match=r"samples \(0\) must be a whole number of at least 1"):
        model.generate([5], samples=0)
    with pytest.raises(ValueError, match=r"samples \(2\) would all be the same text, the greedy one"):
        model.generate([5], temperature=0, samples=2)
    with pytest.raises(ValueError, match="the prompt is empty, so nothing comes before the first token"):
        log_probabilities(model, [], [5])


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_scores_that_break_off_are_an_error_at_that_token(model, value):
    broken = GPT(model.config).eval()
    broken.load_state_dict(model.state_dict())
    with torch.no_grad():
        broken.position_embedding.weight[5] = value
    assert broken.generate([5, 6], 4, seed=3) == model.generate([5, 6], 4, seed=3)  # positions up to 4 are read
    for options in ({"temperature": 0}, {"seed": 3}, {"seed": 3, "top_k": 7, "top_p": 0.9}):
        with pytest.raises(ValueError, match="the model's scores after 4 new tokens are NaN or infinite"):
            broken.generate([5, 6], 9, **options)
        stream = broken.stream([5, 6], 9, **options)
        assert [next(stream) for _ in range(4)] == model.generate([5, 6], 4, **options)
        with pytest.raises(ValueError, match="after 4 new tokens are NaN or infinite; are its weights finite"):
            next(stream)


def test_scores_that_break_off_after_the_end_of_a_text_do_not_matter(model):
    broken = GPT(model.config).eval()
    broken.load_state_dict(model.state_dict())
    prompts = [[5, 6, 7, 8, 9], [7]]
    first, second = model.generate(prompts, 9, seed=3, temperature=9.0)
    at = next(i for i, token in enumerate(first[:3]) if token not in second[:7])
    with torch.no_grad():
        broken.position_embedding.weight[7] = math.nan  # the first row gets there after 3 tokens, the second after 7
    assert broken.generate(prompts, 7, seed=3, temperature=9.0, stop=[first[at]]) == [first[:at], second[:7]]

"""Choosing a token: the right ones can be chosen, each as often as it should, and never one that cannot be."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers import says_it_ourselves
from regard.gpt.generate import sample
from regard.gpt.generate.options import SamplingOptions
from regard.gpt.generate.sample import choose, noises

# Five tokens whose probabilities are eighths and sixteenths, so that sums of them are exact.
SHARES = [1 / 8, 1 / 2, 1 / 16, 1 / 4, 1 / 16]
LOGITS = torch.tensor([SHARES]).log()


def spread(logits, sampling, steps=1600):
    """How often each token is chosen when the noise takes `steps` even steps from 0 to 1."""
    noise = (torch.arange(steps) + 0.5) / steps
    chosen = choose(logits.expand(steps, -1), sampling, noise)
    return torch.bincount(chosen, minlength=logits.shape[-1]) / steps


def by_loops(logits, temperature, top_k, top_p, min_p):
    """The distribution left after all filters, with nothing but Python's own arithmetic."""
    best = max(logits)
    weights = [math.exp((score - best) / temperature) for score in logits]
    shares = {token: weight / math.fsum(weights) for token, weight in enumerate(weights)}
    ranked = sorted(shares, key=lambda token: -shares[token])
    if top_k is not None:
        ranked = ranked[:top_k]
    total = math.fsum(shares[token] for token in ranked)
    kept, reached = [], 0.0
    for token in ranked:
        if top_p is not None and reached >= top_p:
            break
        kept.append(token)
        reached += shares[token] / total
    kept = [token for token in kept if shares[token] >= (min_p or 0) * shares[ranked[0]]]
    total = math.fsum(shares[token] for token in kept)
    return [shares[token] / total if token in kept else 0.0 for token in range(len(logits))]


def test_greedy_takes_the_best_and_of_equals_the_first():
    logits = torch.tensor([[1.0, 5.0, 5.0], [9.0, 2.0, 9.0]])
    for sampling in (SamplingOptions(temperature=0), SamplingOptions(top_k=1)):
        assert choose(logits, sampling).tolist() == [1, 0]


def test_each_token_is_chosen_as_often_as_it_is_likely():
    torch.testing.assert_close(spread(LOGITS, SamplingOptions()), torch.tensor(SHARES), atol=1e-6, rtol=0)


def test_random_noise_gives_the_distribution_too():
    count = 20_000
    noise = noises(7, count)[:, 0]
    chosen = choose(LOGITS.expand(count, -1), SamplingOptions(), noise)
    seen = torch.bincount(chosen, minlength=5).double()
    expected = count * torch.tensor(SHARES, dtype=torch.float64)
    assert ((seen - expected) ** 2 / expected).sum() < 18.5  # chi-square of 4 degrees of freedom, p = 0.001


@pytest.mark.parametrize(
    "sampling, kept",
    [
        (SamplingOptions(top_k=2), {1: 2 / 3, 3: 1 / 3}),
        (SamplingOptions(top_k=99), dict(enumerate(SHARES))),
        (SamplingOptions(top_p=0.01), {1: 1.0}),
        (SamplingOptions(top_p=0.5), {1: 1.0}),  # 1/2 is reached by the first alone
        (SamplingOptions(top_p=0.51), {1: 2 / 3, 3: 1 / 3}),
        (SamplingOptions(top_p=0.75), {1: 2 / 3, 3: 1 / 3}),
        (SamplingOptions(top_p=0.8), {1: 4 / 7, 3: 2 / 7, 0: 1 / 7}),
        (SamplingOptions(top_p=1.0), dict(enumerate(SHARES))),
        (SamplingOptions(top_k=3, top_p=0.7), {1: 2 / 3, 3: 1 / 3}),  # of 4/7, 2/7 and 1/7
        (SamplingOptions(min_p=0.0), dict(enumerate(SHARES))),
        (SamplingOptions(min_p=0.26), {1: 2 / 3, 3: 1 / 3}),
        (SamplingOptions(min_p=1.0), {1: 1.0}),
        (SamplingOptions(top_k=4, min_p=0.25), {1: 4 / 7, 3: 2 / 7, 0: 1 / 7}),
        (SamplingOptions(top_p=0.51, min_p=0.2), {1: 2 / 3, 3: 1 / 3}),
        (SamplingOptions(temperature=0.5), {i: p * p / sum(q * q for q in SHARES) for i, p in enumerate(SHARES)}),
    ],
    ids=str,
)
def test_filters_keep_the_right_tokens_and_share_the_rest_among_them(sampling, kept):
    expected = torch.tensor([kept.get(i, 0.0) for i in range(5)])
    torch.testing.assert_close(spread(LOGITS, sampling), expected, atol=2e-3, rtol=0)


@given(
    st.lists(st.integers(-40, 40), min_size=2, max_size=13, unique=True),
    st.sampled_from([0.3, 1.0, 1.7]),
    st.sampled_from([None, 2, 5]),
    st.sampled_from([None, 0.13, 0.57, 0.93]),
    st.sampled_from([None, 0.07, 0.31]),
)
def test_filters_agree_with_explicit_loops(tenths, temperature, top_k, top_p, min_p):
    logits = [n / 10 for n in tenths]
    expected = torch.tensor(by_loops(logits, temperature, top_k, top_p, min_p))
    result = spread(
        torch.tensor([logits]),
        SamplingOptions(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p),
        steps=4000,
    )
    torch.testing.assert_close(result, expected, atol=1e-3, rtol=0)


@pytest.mark.parametrize("sampling", [SamplingOptions(top_k=2), SamplingOptions(top_p=0.4)], ids=str)
def test_of_tokens_that_are_tied_no_more_are_kept_than_asked_for(sampling):
    result = spread(torch.tensor([[0.0, 1.0, 1.0, 1.0, 1.0]]), sampling)
    assert result[0] == 0
    assert sorted(result.tolist()) == pytest.approx([0, 0, 0, 0.5, 0.5], abs=1e-3)


def test_noise_at_both_ends_falls_on_a_token_that_can_be():
    logits = torch.tensor([[-math.inf, 0.0, -math.inf, 1.0, -math.inf]])
    filters = (
        SamplingOptions(),
        SamplingOptions(top_k=4),
        SamplingOptions(top_p=0.99),
        SamplingOptions(top_k=4, top_p=1.0),
    )
    for sampling, noise in itertools.product(filters, (0.0, 1e-9, 1 - 2**-24, 1.0)):
        assert int(choose(logits, sampling, torch.tensor([noise]))) in (1, 3), (sampling, noise)
    assert choose(logits, SamplingOptions(), torch.tensor([0.0])).item() == 1
    assert choose(logits, SamplingOptions(), torch.tensor([1.0])).item() == 3


@given(st.integers(0, 2**32 - 1), st.floats(0, 1, width=32))
def test_a_token_of_probability_0_is_never_chosen(seed, noise):
    drawn = torch.randn(1, 997, generator=torch.Generator().manual_seed(seed))
    logits = drawn.masked_fill(drawn < 0.5, -math.inf)
    for sampling in (SamplingOptions(), SamplingOptions(top_k=700), SamplingOptions(top_p=0.999)):
        assert logits[0, choose(logits, sampling, torch.tensor([noise]))] > -math.inf


def test_a_very_low_temperature_is_nearly_greedy_and_does_not_overflow():
    logits = torch.tensor([[3.0, 5.0, -1e4, 4.0]])
    assert spread(logits, SamplingOptions(temperature=1e-30)).tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize("temperature", [5e-324, 1e-300, 1e-45, 1e-39, 1.17e-38, 1.2e-38])
def test_a_temperature_that_underflows_is_greedy(temperature):
    logits = torch.tensor([[3.0, 5.0, -1e4, 4.0]])
    assert spread(logits, SamplingOptions(temperature=temperature)).tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize("top_p", [5e-324, 1e-45, 1e-38])
def test_a_nucleus_that_underflows_is_the_best_token(top_p):
    assert spread(LOGITS, SamplingOptions(top_p=top_p)).tolist() == [0, 1, 0, 0, 0]


def test_half_precision_is_chosen_from_in_float32():
    logits = torch.randn(1, 4099)
    noise = noises(3, 257)[:, 0]
    for dtype in (torch.bfloat16, torch.float16):
        low = logits.to(dtype).expand(257, -1)
        assert torch.equal(choose(low, SamplingOptions(), noise), choose(low.float(), SamplingOptions(), noise))


def test_the_nucleus_is_the_same_whether_few_tokens_or_all_are_sorted(monkeypatch):
    logits = 3 * torch.randn(7, 4099)
    noise = noises(5, 7)[:, 0]
    quick = choose(logits, SamplingOptions(top_p=0.5), noise)
    monkeypatch.setattr(sample, "FEW", 10**9)
    assert torch.equal(choose(logits, SamplingOptions(top_p=0.5), noise), quick)


def test_a_nucleus_of_more_than_a_few_tokens_is_found(monkeypatch):
    monkeypatch.setattr(sample, "FEW", 2)
    expected = torch.tensor([1 / 7, 4 / 7, 0, 2 / 7, 0])
    torch.testing.assert_close(spread(LOGITS, SamplingOptions(top_p=0.8)), expected, atol=2e-3, rtol=0)


def test_nothing_is_asked_of_the_host():
    # On the meta device there are no values: whoever looks at one fails.
    for sampling in (
        SamplingOptions(),
        SamplingOptions(top_k=3),
        SamplingOptions(top_p=0.9),
        SamplingOptions(temperature=0.7, top_k=3, top_p=0.9, min_p=0.1),
        SamplingOptions(temperature=0),
    ):
        assert choose(torch.empty(2, 11, device="meta"), sampling, torch.empty(2, device="meta")).shape == (2,)


def test_noise_is_the_same_for_a_row_alone_and_in_a_batch():
    together = noises(11, count=13, batch=5)
    assert together.shape == (13, 5)
    assert together.dtype is torch.float32
    for i in range(5):
        torch.testing.assert_close(together[:, [i]], noises(11 + i, count=13), rtol=0, atol=0)
    torch.testing.assert_close(together[:, 2:], noises(11, count=13, batch=3, first_row=2), rtol=0, atol=0)
    assert noises(11, count=13, batch=0).shape == (13, 0)


def test_a_longer_text_begins_with_the_same_noise():
    torch.testing.assert_close(noises(3, 17)[:5], noises(3, 5), rtol=0, atol=0)


def test_without_a_seed_noise_follows_torchs_own_generator():
    assert not torch.equal(noises(None, 7), noises(None, 7))
    torch.manual_seed(5)
    once = noises(None, 7)
    torch.manual_seed(5)
    assert torch.equal(noises(None, 7), once)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"temperature": -0.1}, r"temperature \(-0.1\) must be a number of at least 0; 0 takes the best token"),
        ({"temperature": math.nan}, r"temperature \(nan\) must be a number of at least 0"),
        ({"temperature": math.inf}, r"temperature \(inf\) must be a number of at least 0"),
        ({"top_k": 0}, r"top_k \(0\) must be a whole number of at least 1; leave it out for all tokens"),
        ({"top_k": True}, r"top_k \(True\) must be a whole number"),
        ({"top_p": 0.0}, r"top_p \(0.0\) must be above 0 and at most 1; 0.9 is usual"),
        ({"top_p": 1.01}, r"top_p \(1.01\) must be above 0 and at most 1"),
        ({"min_p": -0.1}, r"min_p \(-0.1\) must be from 0 to 1; 0.05 is usual, 0 keeps all tokens"),
        ({"min_p": math.nan}, r"min_p \(nan\) must be from 0 to 1"),
    ],
)
def test_what_cannot_be_sampled_by_says_what_could(options, message):
    with pytest.raises(ValueError, match=message):
        SamplingOptions(**options)


@says_it_ourselves
def test_wrong_types_and_seeds_are_told():
    with pytest.raises(ValueError, match=r"top_k \(2.5\) must be a whole number of at least 1"):
        SamplingOptions(top_k=2.5)
    with pytest.raises(ValueError, match=r"seed \(-1\) must be a whole number of at least 0 and below 2³²; try 7"):
        noises(-1, 3)
    with pytest.raises(ValueError, match=r"seed \(4294967296\) must be a whole number"):
        noises(2**32, 3)
    with pytest.raises(
        ValueError, match=r"SamplingOptions\(temperature=1.0, top_k=None, top_p=None, min_p=None\) needs noise"
    ):
        choose(LOGITS, SamplingOptions())

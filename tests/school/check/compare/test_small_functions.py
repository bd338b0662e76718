import numpy as np
import pytest
import torch

from regard.school.check.check import check
from regard.school.check.compare.constructor_arguments import ProbeSizes
from regard.school.check.compare.small_functions import check_small
from regard.school.check.learner_code.subject import LocalSubject


def softmax(x):
    powers = (x - x.amax(-1, keepdim=True)).exp()
    return powers / powers.sum(-1, keepdim=True)


def softmax_of_arrays(x, axis=-1):
    powers = np.exp(x - x.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


def causal_mask(T):
    return torch.tril(torch.ones(T, T))


def future_mask(T):
    return torch.triu(torch.ones(T, T), diagonal=1).bool()


def added_mask(T):
    return torch.full((T, T), -torch.inf).triu(1)


def split_heads(x, num_heads):
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)


def merge_heads(x):
    return x.transpose(1, 2).flatten(2)


@pytest.mark.parametrize(
    "function",
    [softmax, softmax_of_arrays, causal_mask, future_mask, added_mask, split_heads, merge_heads],
    ids=lambda one: one.__name__,
)
def test_a_right_small_function_passes(function):
    assert check(function).findings == []


def softmax_of_columns(x):
    return torch.softmax(x, dim=0)


def softmax_of_all(x):
    return x.exp() / x.exp().sum()


def causal_mask_without_diagonal(T):
    return torch.tril(torch.ones(T, T), diagonal=-1)


def causal_mask_with_one_more(T):
    return torch.tril(torch.ones(T, T), diagonal=1)


def split_heads_by_view(x, num_heads):
    B, T, E = x.shape
    return x.view(B, num_heads, T, E // num_heads)


def combine_heads(x):
    B, H, T, D = x.shape
    return x.reshape(B, T, H * D)


WRONG = {
    softmax_of_columns: "softmax over the queries",
    softmax_of_all: "softmax over all numbers",
    causal_mask_without_diagonal: "mask off by one: the token itself hidden",
    causal_mask_with_one_more: "mask off by one: one future token seen",
    split_heads_by_view: "split without transpose",
    combine_heads: "merge without transposing back",
}


@pytest.mark.parametrize("function", WRONG, ids=lambda one: one.__name__)
def test_a_wrong_small_function_is_named(function):
    assert [one.name for one in check(function).mistakes] == [WRONG[function]]


def test_a_softmax_that_overflows_is_a_warning():
    def softmax(x):
        return x.exp() / x.exp().sum(-1, keepdim=True)

    verdict = check(softmax)
    assert verdict.is_right
    assert [one.name for one in verdict.warnings] == ["softmax overflows"]


def test_something_else_has_no_name():
    def softmax(x):
        return x / x.sum(-1, keepdim=True)

    assert [one.name for one in check(softmax).mistakes] == [""]


def test_a_failure_is_told():
    def causal_mask(T):
        return T + "x"

    assert check(causal_mask).mistakes[0].says.startswith("It fails: TypeError: ")


def test_a_function_that_returns_nothing_is_told():
    def split_heads(x, num_heads):
        x.view(*x.shape[:2], num_heads, -1)

    assert check(split_heads).mistakes[0].says == "It returns no tensor; return the result."


@pytest.mark.parametrize("value", [float("nan"), 7.0, -3.0, float("inf")])
def test_a_mask_of_other_numbers_is_none(value):
    def causal_mask(T):
        return torch.where(torch.ones(T, T).tril() > 0, value, 0.0)

    assert check(causal_mask).status == "wrong"


def test_a_function_for_one_size_is_wrong():
    def causal_mask(T):
        return torch.ones(5, 5).tril()

    def merge_heads(x):
        return x.transpose(1, 2).reshape(2, 5, 21)

    (one,) = check(causal_mask).mistakes
    assert one.name == "hard-coded sizes"
    assert one.says.startswith("It is right for 5 tokens, and not for 7 tokens. It computes something else")
    (one,) = check(merge_heads).mistakes
    assert one.says.startswith(
        "It is right for 5 tokens and 3 heads of 7, and not for 7 tokens and 5 heads of 3. It fails"
    )


def test_hidden_sizes_and_seeds_are_used():
    given = []

    def softmax(x):
        given.append(x.clone())
        return x.softmax(-1)

    def causal_mask(T):
        given.append(T)
        return torch.ones(T, T).tril()

    sizes = ProbeSizes(num_heads=4, T=9)
    for seed in (0, 1, 1):
        assert check_small(LocalSubject(softmax), "softmax", sizes, seed).is_right
    shapes = [tuple(t.shape) for t in given]
    assert shapes[:3] == [(4, 9), (9,), (9,)]
    assert not torch.equal(given[0], given[6])
    assert torch.equal(given[6], given[12])
    assert check_small(LocalSubject(causal_mask), "mask", sizes).is_right
    assert given[-2:] == [9, 7]


def document_mask(ids):
    return (ids[:, None] == ids[..., None]) & torch.ones(ids.shape[-1], ids.shape[-1]).tril().bool()


def band_mask(n, width=2):
    return (torch.arange(n)[:, None] - torch.arange(n)).abs() <= width


def split_heads_by_sizes(x, B, T, H):
    return x.view(B, T, H, -1).transpose(1, 2)


@pytest.mark.parametrize("function", [document_mask, band_mask, split_heads_by_sizes], ids=lambda one: one.__name__)
def test_what_it_takes_or_is_for_may_be_unknown(function):
    verdict = check(function)
    assert verdict.problem.startswith("how it is called, or what it is for, is not known. ")
    assert verdict.findings == []


def causal_mask_of_x(x):
    return torch.ones(x.shape[1], x.shape[1]).tril()


def split_heads_of_one_text(x, num_heads):
    T, E = x.shape
    return x.view(T, num_heads, E // num_heads).transpose(0, 1)


def merge_heads_behind(x):
    return x.flatten(-2)


@pytest.mark.parametrize("function", [causal_mask_of_x, split_heads_of_one_text, merge_heads_behind])
def test_a_small_function_may_take_x_one_text_or_heads_behind_the_tokens(function):
    assert check(function).is_right

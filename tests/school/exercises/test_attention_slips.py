"""The slips that every exercise with the formula shares: each is wrong, none is another, and they are what they say."""

from itertools import combinations

import pytest
import torch

from regard.school.exercises.attention_slips import WITH_MASK, attention_slips


def tensors(masked):
    random = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, size, 11, generator=random) for size in (5, 7, 7))
    return (q, k, v, torch.ones(5, 7, dtype=torch.bool).tril(2)) if masked else (q, k, v)


def results(masked):
    slips = attention_slips(lambda *arguments: arguments, leave_out=() if masked else WITH_MASK)
    return {one.name: one.act(*tensors(masked)) for one in slips}


@pytest.mark.parametrize("masked", [False, True])
def test_every_slip_is_wrong_and_none_is_another(masked):
    q, k, v, *mask = tensors(masked)
    right = torch.nn.functional.scaled_dot_product_attention(q, k, v, *mask)
    seen = {"right": right, **results(masked)}
    equal = [(a, b) for a, b in combinations(seen, 2) if torch.allclose(seen[a], seen[b], atol=1e-4)]
    assert equal == []


def test_a_slip_computes_what_its_name_says():
    q, k, v = tensors(False)
    seen, scores = results(False), q @ k.mT
    torch.testing.assert_close(seen["no scale"], scores.softmax(-1) @ v)
    torch.testing.assert_close(seen["half of head_dim"], (scores / 5.5).softmax(-1) @ v)
    torch.testing.assert_close(seen["keys mixed"], (scores / 11**0.5).softmax(-1) @ k)


def test_with_a_mask_hidden_keys_stay_hidden_but_where_that_is_the_slip():
    q, k, v, visible = tensors(True)
    seen = results(True)
    torch.testing.assert_close(seen["no scale"], (q @ k.mT).masked_fill(~visible, -torch.inf).softmax(-1) @ v)
    torch.testing.assert_close(seen["no mask"], torch.nn.functional.scaled_dot_product_attention(q, k, v))


def test_what_is_left_out_is_not_there_and_the_result_is_finished():
    slips = attention_slips(lambda *a: a, lambda context, q, k, v: (context, k), leave_out=("no scale", *WITH_MASK))
    assert "no scale" not in {one.name for one in slips}
    torch.testing.assert_close(slips[0].act(*tensors(False))[1], tensors(False)[1])

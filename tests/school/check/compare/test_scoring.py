import torch

from regard.school.check.compare.products import RunHeads, RunProduct
from regard.school.check.compare.scoring import AFTER_MASK, NOT_BACK, scoring_of

B, H, T, D = 29, 3, 5, 7


def heads(weigh):
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(B, H, T, D, dtype=torch.float64, generator=generator) for _ in range(3))
    raw = q @ k.mT
    weights = weigh(raw, q)
    compared = RunProduct(0, 1, q, k, ("bhtd", "bhsd", "bhts"), (0, 1), raw)
    mixed = RunProduct(1, 2, weights, v, ("bhts", "bhsd", "bhtd"), (2, 3), weights @ v)
    return RunHeads(q, k, v, raw, weights, weights @ v, compared, mixed)


def test_factor_bias_and_mask_of_a_softmax_are_found():
    bias = torch.randn(H, T, T, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    hidden = torch.ones(T, T, dtype=torch.bool).triu(1)
    found = scoring_of(heads(lambda raw, q: (raw * 0.3 + bias).masked_fill(hidden, -torch.inf).softmax(-1)))
    torch.testing.assert_close(found.factor, torch.full((H,), 0.3, dtype=torch.float64))
    torch.testing.assert_close(found.visible, (~hidden).expand(H, T, T))
    scores = heads(lambda raw, q: raw).raw * 0.3
    again = (scores + found.bias).masked_fill(hidden, -torch.inf).softmax(-1)
    torch.testing.assert_close(again, (scores + bias).masked_fill(hidden, -torch.inf).softmax(-1))


def test_scores_that_are_bounded_are_found_by_their_bound():
    found = scoring_of(heads(lambda raw, q: (4 * torch.tanh(raw * D**-0.5 / 4)).softmax(-1)), caps=[4.0])
    assert found.cap == 4.0
    torch.testing.assert_close(found.factor, torch.full((H,), D**-0.5, dtype=torch.float64))


def test_what_is_added_by_query_and_position_is_relative():
    table = torch.randn(T, T, D, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    found = scoring_of(heads(lambda raw, q: (raw * D**-0.5 + torch.einsum("bhtd,tsd->bhts", q, table)).softmax(-1)))
    assert found.is_relative


def test_weights_that_are_no_softmax_of_the_products_are_none():
    assert scoring_of(heads(lambda raw, q: (raw**2).softmax(-1))) is None


def test_a_cap_that_is_not_multiplied_back_or_comes_after_the_mask_is_a_fault():
    plain = scoring_of(heads(lambda raw, q: torch.tanh(raw * D**-0.5 / 4).softmax(-1)), caps=[4.0])
    assert plain.fault == NOT_BACK
    hidden = torch.ones(T, T, dtype=torch.bool).triu(1)

    def capped(raw, q):
        return (4 * torch.tanh((raw * D**-0.5).masked_fill(hidden, -torch.inf) / 4)).softmax(-1)

    late = scoring_of(heads(capped), caps=[4.0])
    assert late.fault == AFTER_MASK
    torch.testing.assert_close(late.visible, (~hidden).expand(H, T, T))
    torch.testing.assert_close(late.factor, torch.full((H,), D**-0.5, dtype=torch.float64))

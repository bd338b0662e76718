"""What the mask alone decides, counted without a T × S tile and with one."""

import pytest
import torch
from torch.testing import assert_close

from heads import dense
from heads.made_calls import made_call
from regard.attention.masks import EVERYTHING, causal, documents, padding, window
from regard.heads.calls import visibility
from regard.heads.calls.visibility import visible_key_counts
from regard.support.hidden_scores import may_see, may_see_among

KEEP = torch.tensor([[False, True, True, False, True, True, True], [True] * 7])


@pytest.mark.parametrize(
    "rule",
    [
        causal(),
        window(3),
        causal() & window(2),
        padding(KEEP),
        causal() & padding([3, 7]),
        padding([0, 2]) & window(4),
        documents([0, 0, 1, 1, 1, 2, 2]),
        causal() & ~window(2),
        padding(KEEP) | causal(),
    ],
    ids=lambda rule: rule.name,
)
@pytest.mark.parametrize("T", [1, 5, 7, 11])
@pytest.mark.parametrize("tile", [1, 2**24])
def test_what_the_mask_alone_decides_is_what_a_dense_mask_says(rule, T, tile, monkeypatch):
    B, H, S = 2, 3, 7
    if T > S and "documents" in rule.kind:
        pytest.skip("documents name every query")
    monkeypatch.setattr(visibility, "_TILE", tile)
    real = torch.rand(B, T) < 0.7
    call = made_call("", q=torch.empty(B, H, T, 0), k=torch.empty(B, H, S, 0), mask=rule, real=real)
    seen = dense.visible(call) & dense.counted(call)[..., None]
    count, distance = visibility.visible_key_counts(call)
    many = torch.where(seen.any(-1), seen.sum(-1), torch.nan)
    apart = (dense.places(call)[:, None] - torch.arange(S)).abs()
    assert_close(count.expand(B, H, T), many, equal_nan=True)
    assert_close(distance.expand(B, H, T), (seen * apart).sum(-1) / many, equal_nan=True)
    assert_close(visibility.queries_per_key(call).expand(B, H, S), seen.sum(2))


def test_the_lowest_number_in_a_bias_hides_as_minus_infinity_does():
    bias = torch.full((5, 5), torch.finfo(torch.float32).min).triu(1)[None, None]
    count, _ = visibility.visible_key_counts(dense.random_call(bias=bias))
    assert_close(count, torch.arange(1.0, 6.0)[None, None])


def test_weights_that_leave_out_the_future_are_taken_for_causal():
    weights = dense.pattern(lambda i: 0, 7, weight=0.2)
    count, distance = visible_key_counts(made_call("", weights=weights))
    assert_close(count, torch.arange(1.0, 8)[None, None])
    assert_close(distance, torch.arange(7.0)[None, None] / 2)
    weights[0, 0, 2, 5] = 0.1
    expected = torch.tensor([[[1.0, 2.0, 4.0, 4.0, 5.0, 6.0, 7.0]]])
    assert_close(visible_key_counts(made_call("", weights=weights))[0], expected)


RULES = [
    causal(),
    window(3),
    causal() & window(2),
    padding(KEEP),
    padding(KEEP) & causal(),
    padding(KEEP) & window(4),
    padding(KEEP) & causal() & window(3),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@pytest.mark.parametrize("T", [3, 5, 7])
def test_a_mask_that_is_written_out_is_read_as_the_rule_that_it_is(rule, T):
    seen = rule.dense(T, 7).expand(2, 1, T, 7)
    mask = visibility.mask_written_out(seen)
    assert mask.parts().rest is None
    assert torch.equal(mask.dense(T, 7).expand(2, 1, T, 7), seen)


@pytest.mark.parametrize("shape", [(2, 1, 5, 7), (2, 3, 5, 7)])
def test_any_other_mask_stays_written_out(shape):
    seen = torch.rand(shape) < 0.6
    assert torch.equal(visibility.mask_written_out(seen).dense(5, 7).expand(shape), seen)
    assert visibility.mask_written_out(torch.ones(shape, dtype=torch.bool)) is EVERYTHING
    nothing = visibility.mask_written_out(torch.zeros(shape, dtype=torch.bool))
    assert not nothing.dense(5, 7).any()


def test_layers_that_hide_the_same_keys_share_one_mask():
    masks = visibility.MasksOfScores()
    full, local = (torch.rand(2, 1, 5, 7) < 0.6 for _ in range(2))
    first, second = masks.of(full.expand(2, 3, 5, 7)), masks.of(local.expand(2, 3, 5, 7))
    assert first.seen.shape == (2, 1, 5, 7)
    assert masks.of(full.expand(2, 3, 5, 7)) is first
    assert masks.of(local.expand(2, 11, 5, 7)) is second
    by_head = torch.rand(2, 3, 5, 7) < 0.6
    assert torch.equal(masks.of(by_head).seen, by_head)
    masks.forget()
    assert masks.of(full.expand(2, 3, 5, 7)) is not first


def test_minus_ten_thousand_hides_where_no_score_is_near_it():
    scores = torch.randn(5, 7).masked_fill(causal().dense(5, 7)[0, 0].logical_not(), -1e4)
    assert torch.equal(may_see_among(scores), causal().dense(5, 7)[0, 0])
    slopes = -torch.arange(12_000.0)[:, None]  # as of ALiBi, over a long text
    assert may_see_among(slopes).all()


def test_scores_of_minus_infinity_and_lowest_numbers_are_hidden_and_nan_is_not():
    lowest = [torch.finfo(dtype).min for dtype in (torch.float16, torch.bfloat16, torch.float32)]
    scores = torch.tensor([-torch.inf, *lowest, -1e4, 0.0, torch.nan])
    assert may_see(scores).tolist() == [False] * 4 + [True] * 3

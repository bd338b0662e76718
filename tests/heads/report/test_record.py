"""Records: what is kept of a call, and how the steps of a generation are joined."""

import pytest
import torch
from torch.testing import assert_close

from heads import dense
from heads.dense import generation, random_call
from heads.made_calls import made_call
from heads.reports import seen_of, steps_seen, two_layers
from regard.attention.masks import Causal, causal, documents, padding, window
from regard.attention.masks import dense as dense_mask
from regard.heads.calls.call import TextIds
from regard.heads.intercept.sdpa import CausalFromFirstKey
from regard.heads.report.record import Record, RecordedCall, call_in_order
from regard.heads.report.report import Seen

STEPS = [5, 1, 1, 3, 1]
ALL = (*dense.ROWS, "received", "received_mean", "histogram")


@pytest.fixture(autouse=True)
def _by_definition(monkeypatch):
    dense.stand_in(monkeypatch)


def test_token_ids_that_were_not_known_are_asked_for():
    with pytest.raises(ValueError, match=r'"induction" was not collected.*it needs the token ids: .*tokens=input_ids'):
        _ = seen_of(random_call())[0, 0].induction


@pytest.mark.parametrize(
    ("ask", "what"),
    [
        (lambda head: head.weights(rows=0), r"weights\(\)"),
        (lambda head: head.top(3), r"top\(3\)"),
        (lambda head: head.map(3), r"map\(3\)"),
        (lambda head: head.histogram, "histogram"),
    ],
)
def test_nothing_kept_says_what_to_keep(ask, what):
    seen = two_layers(keep=False)
    with pytest.raises(ValueError, match=what + r" needs the queries and keys of h\.0\.attn, .* watch with keep=True"):
        ask(seen[0, 0])


def test_what_is_wide_and_collected_needs_nothing_kept():
    call = random_call(T=5, S=7)
    head = seen_of(call, collect=("histogram", "top", "map"), keep=False)[0, 1]
    assert_close(head.histogram, dense.histogram(call, None, 1))
    assert_close(head.map(), dense.pooled(call, None, 1, 128))
    assert_close(head.top(3).keys, dense.top(call, None, 1, 3)[0])
    with pytest.raises(ValueError, match=r"top\(9\) needs the queries and keys"):
        head.top(9)


def test_what_is_kept_is_a_copy_that_later_changes_do_not_reach():
    call = random_call()
    seen = seen_of(call)
    before = seen[0, 0].weights()
    call.attention.q.zero_()
    call.attention.k.zero_()
    assert_close(seen[0, 0].weights(), before)


def test_on_demand_a_generation_is_one_matrix():
    whole, steps = generation(STEPS, Hkv=1)
    head = steps_seen(steps)[0, 2]
    assert_close(head.weights(), dense.weights(whole, None, 2, torch.arange(11), torch.arange(11)))
    rows, cols = torch.tensor([10, 0, 6]), torch.tensor([9, 1])
    assert_close(head.weights(rows, cols), dense.weights(whole, None, 2, rows, cols))
    assert_close(head.map(4), dense.pooled(whole, None, 2, 4))
    assert_close(head.map(), dense.pooled(whole, None, 2, 128))
    assert_close(head.histogram, dense.histogram(whole, None, 2))
    for found, expected in zip(head.top(6), dense.top(whole, None, 2, 6), strict=True):
        assert_close(found, expected)


def test_of_keys_that_only_grow_the_newest_are_kept():
    _, steps = generation([5, 1, 1, 1])
    record = steps_seen(steps)[0].record
    assert record.shared.shape[2] == 8
    assert all(step.call.attention.k.numel() == 0 for step in record.steps)


def test_keys_that_were_turned_again_prove_nothing_and_stay_apart():
    _, steps = generation([5, 1, 1])
    turned = [c.with_attention(k=c.attention.k * (n + 1)) for n, c in enumerate(steps)]
    seen = steps_seen(turned)
    assert [one[0].record.sizes for one in seen.forwards] == [call.sizes for call in turned]


def test_keys_that_are_shared_no_longer_are_kept_for_each_step():
    whole, steps = generation([4, 1, 1, 1, 1], mask=causal() & window(4))
    kept = [c.with_attention(k=c.attention.k[:, :, -4:]) if n > 1 else c for n, c in enumerate(steps)]
    seen = steps_seen(kept)
    assert len(seen.forwards) == 1
    assert_close(seen[0].weights(), dense.probabilities(whole))


def test_a_window_that_lets_old_keys_go_is_still_one_text():
    whole, steps = generation([5, 1, 1], mask=causal() & window(3))
    kept = [steps[0]] + [c.with_attention(k=c.attention.k[:, :, -3:], mask=causal() & window(3)) for c in steps[1:]]
    seen = steps_seen(kept)
    expected = dense.measure(whole, ALL)
    for name in ("entropy", "distance", "largest_key", "received", "previous", "self", "sink"):
        assert_close(getattr(seen[0], name), expected[name], equal_nan=True)
    assert_close(seen[0].weights(), dense.probabilities(whole))
    assert_close(seen[0, 1].top(3).keys, dense.top(whole, None, 1, 3)[0])


def test_rows_that_give_most_of_their_weight_away_are_in_the_map_of_a_generation():
    """As with learned sinks, beside which the weights of a row do not sum to one."""
    future = torch.ones(6, 6, dtype=torch.bool).triu(1)
    whole = 0.3 * torch.randn(1, 2, 6, 6, dtype=torch.float64).masked_fill(future, -torch.inf).softmax(-1)
    seen = Seen()
    marks = torch.arange(6)[None]
    seen.add(0, 0, made_call("", weights=whole[:, :, :5, :5], fingerprint=marks[:, :5]))
    seen.add(1, 0, made_call("", weights=whole[:, :, 5:], fingerprint=marks))
    assert len(seen.forwards) == 1
    assert_close(seen[0, 1].map(6), whole[:, 1])
    assert_close(seen[0, 0].map(1)[:, 0, 0], whole[:, 0].mean((1, 2)))


def test_padding_before_a_text_stays_the_first_key_of_a_window_that_lets_it_go():
    """The first token is the third key; the cache of the second step begins with the fourth."""
    keep = torch.tensor([[False, False, True, True, True, True]])
    q, k = torch.randn(1, 2, 6, 3), torch.randn(1, 2, 6, 3)
    mask = causal() & window(3)
    seen = Seen()
    seen.add(0, 0, made_call("a", q=q[:, :, :5], k=k[:, :, :5], mask=mask, real=keep[:, :5]))
    seen.add(1, 0, made_call("a", q=q[:, :, 5:], k=k[:, :, 3:], mask=mask, real=keep[:, 5:]))
    assert len(seen.forwards) == 1
    right = dense.measure(made_call("a", q=q, k=k, mask=mask, real=keep), {"sink", "previous", "self"})
    # Of the whole text, the first key that a real token sees is the first of its window, not the first real one.
    assert_close(seen[0].sink[..., -1], torch.zeros(1, 2, dtype=torch.float64))
    for name in ("previous", "self"):
        assert_close(getattr(seen[0], name), right[name], equal_nan=True)


def test_the_map_of_a_generation_needs_its_keys():
    _, steps = generation([5, 1])
    with pytest.raises(ValueError, match=r"map\(3\) needs the queries and keys of attention"):
        steps_seen(steps, collect=("map",), keep=False)[0, 0].map(3)


def test_the_largest_keys_of_a_generation_are_collected_and_joined():
    whole, steps = generation([5, 1, 1], Hkv=1)
    seen = steps_seen(steps, collect=("top",), keep=False)
    keys, weights = dense.top(whole, None, 1, 4)
    assert_close(seen[0, 1].top(4).keys, keys)
    assert_close(seen[0, 1].top(4).weights, weights)


@pytest.mark.parametrize("n", [3, 64])
def test_visible_cells_of_a_generation_hold_a_visible_key(n):
    seen = steps_seen(generation(STEPS, mask=causal() & window(4))[1])
    visible = seen[0].visible()
    B, H, T, S = visible.shape
    rows, cols = min(n, T), min(n, S)
    expected = torch.zeros(B, H, rows, cols, dtype=torch.bool)
    for row in range(rows):
        for col in range(cols):
            cell = visible[:, :, row * T // rows : (row + 1) * T // rows, col * S // cols : (col + 1) * S // cols]
            expected[:, :, row, col] = cell.any(-1).any(-1)
    assert torch.equal(seen[0].visible_cells(n), expected)


def test_queries_per_key_of_a_generation_count_those_that_may_see_it():
    seen = steps_seen(generation(STEPS, mask=causal() & window(4))[1])
    assert torch.equal(seen[0].queries_per_key().long(), seen[0].visible().sum(2))


def test_rows_of_padding_have_no_visible_cells():
    real = torch.tensor([[False, False, True, True, True], [True, True, True, True, False]])
    layer = seen_of(random_call(mask=causal(), real=real))[0]
    assert torch.equal(layer.visible_cells(5), layer.visible())
    assert not layer.visible_cells(5)[0, :, :2].any()


ORDER = torch.tensor([2, 2, 0])
DOCUMENTS = torch.tensor([[0, 0, 1, 1, 1], [0, 1, 1, 2, 2], [0, 0, 0, 0, 1]])


@pytest.mark.parametrize(
    "mask",
    [
        causal() & window(2),
        padding([5, 4, 3]) | documents(DOCUMENTS),
        ~padding(DOCUMENTS > 0) & causal(),
        documents(DOCUMENTS[0]),
        dense_mask(torch.rand(3, 1, 5, 5) < 0.5),
        dense_mask(torch.rand(5, 5) < 0.5),
        CausalFromFirstKey(),
    ],
    ids=lambda mask: mask.kind,
)
def test_a_mask_is_that_of_the_texts(mask):
    call = dense.random_call(B=3, T=5, mask=mask)
    expected = mask.dense(5, 5).expand(3, -1, 5, 5)[ORDER]
    assert torch.equal(call_in_order(call, ORDER).attention.mask.dense(5, 5).expand(3, -1, 5, 5), expected)


def test_what_a_call_has_for_each_text_is_reordered_and_what_it_has_for_all_is_not():
    bias, ids = torch.randn(3, 1, 5, 5), torch.arange(15).view(3, 5)
    call = dense.random_call(B=3, T=5, bias=bias, tokens=ids, query_text=TextIds(ids, ids > 3), mask=Causal())
    new = call_in_order(call, ORDER)
    for name in ("q", "k", "bias"):
        assert torch.equal(getattr(new.attention, name), getattr(call.attention, name)[ORDER])
    assert torch.equal(new.origin.tokens, ids[ORDER])
    assert torch.equal(new.origin.query_text.ids, ids[ORDER])
    assert torch.equal(new.origin.query_text.real, (ids > 3)[ORDER])
    same = call_in_order(made_call("", q=call.attention.q, k=call.attention.k, bias=bias[:1]), ORDER)
    assert torch.equal(same.attention.bias, bias[:1])


def test_several_orders_one_after_the_other_are_those_of_the_last_step():
    texts = [[0.0, 1.0, 2.0], [1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 1.0, 1.0]]  # by what they begin with
    steps = [RecordedCall(random_call(B=3), True, {"x": torch.tensor(step)}) for step in texts]
    record = Record("a", steps, orders=[(1, torch.tensor([1, 1, 0])), (3, torch.tensor([2, 0, 1]))])
    record.settle()
    assert [step.measured["x"].tolist() for step in record.steps] == [texts[3]] * 4
    assert record.orders == []

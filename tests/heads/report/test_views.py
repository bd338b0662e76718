"""Layers and heads of a report: every statistic by its name, and exact weights on demand."""

import re

import pytest
import torch
from torch.testing import assert_close

import regard
from heads import dense
from heads.dense import random_call
from heads.made_calls import made_call
from heads.reports import WORDS, seen_of, two_layers
from helpers import says_it_ourselves
from regard.attention.masks import causal
from regard.heads.measure.registry import BY_NAME, COLUMNS, ROWS
from regard.heads.measure.registry import NAMES as EVERY
from regard.heads.report.report import Seen
from regard.heads.report.views import Head, SeenLayer


@pytest.fixture(autouse=True)
def _by_definition(monkeypatch):
    dense.stand_in(monkeypatch)


@pytest.mark.parametrize("name", [n for n in EVERY if n not in ("histogram", "top", "map")])
def test_every_statistic_of_a_head_is_its_part_of_the_layers(name):
    call = random_call(mask=causal(), tokens=WORDS)
    seen = seen_of(call, collect=[name])
    expected = dense.measure(call, {name})[name]
    assert_close(getattr(seen[0], name), expected, rtol=0, atol=0, equal_nan=True)
    assert_close(getattr(seen[0, 2], name), expected[:, 2], rtol=0, atol=0, equal_nan=True)


def test_what_needs_the_weights_is_computed_on_demand():
    call = random_call(T=5, S=11, Hkv=1, mask=causal())
    head = seen_of(call)[0, 1]
    assert_close(head.histogram, dense.histogram(call, None, 1))
    assert_close(head.map(3), dense.pooled(call, None, 1, 3))
    for found, expected in zip(head.top(4), dense.top(call, None, 1, 4), strict=True):
        assert_close(found, expected)


def test_a_layer_gives_all_heads_at_once():
    layer = seen_of(random_call())[0]
    for each, of_all in [
        ([h.weights() for h in map(layer.__getitem__, range(3))], layer.weights()),
        ([h.map(2) for h in map(layer.__getitem__, range(3))], layer.map(2)),
        ([h.top(2).keys for h in map(layer.__getitem__, range(3))], layer.top(2).keys),
        ([h.histogram for h in map(layer.__getitem__, range(3))], layer.histogram),
    ]:
        assert_close(of_all, torch.stack(each, 1))
    assert len(layer) == 3
    assert len(layer.roles) == len(layer.summary) == 3


@pytest.mark.parametrize(
    ("rows", "cols", "places"),
    [
        (None, None, (slice(None), slice(None))),
        (2, -1, ([2], [6])),
        (slice(1, None, 2), [0, 0, 5], (slice(1, None, 2), [0, 0, 5])),
        (torch.tensor([4, 1]), slice(None, None, -1), ([4, 1], [6, 5, 4, 3, 2, 1, 0])),
        (torch.tensor([True, False, True, False, False]), range(2, 4), ([0, 2], [2, 3])),
        ([], 3, ([], [3])),
    ],
)
def test_rows_and_columns_are_chosen_as_in_a_list(rows, cols, places):
    call = random_call(T=5, S=7)
    expected = dense.probabilities(call)[:, 1][:, places[0]][:, :, places[1]]
    assert_close(seen_of(call)[0, 1].weights(rows, cols), expected)


@says_it_ourselves
@pytest.mark.parametrize(
    ("choose", "message"),
    [
        (lambda seen: seen[2, 0], r"layer 2 does not exist: this report has 2 layers, 0 to 1"),
        (lambda seen: seen[0, -4], r"head -4 does not exist: h\.0\.attn has 3 heads, 0 to 2"),
        (lambda seen: seen[0, 1.5], r"a head is chosen by a whole number, not by 1\.5"),
        (lambda seen: seen["h.7.attn"], r"no layer is called 'h\.7\.attn'; choose by number, or one of h\.0–1\.attn"),
        (lambda seen: seen[0, 0].weights(rows=5), r"row 5 does not exist: there are 5, 0 to 4"),
        (lambda seen: seen[0, 0].weights(cols=[0, -6]), r"column -6 does not exist: there are 5, 0 to 4"),
        (
            lambda seen: seen[0, 0].weights(torch.tensor([True])),
            r"a choice of rows by True and False needs 5 of them; this has 1",
        ),
        (lambda seen: seen[0, 0].top(0), r"top\(0\) must ask for a whole number of at least 1"),
        (lambda seen: seen[0, 0].map(-1), r"map\(-1\) must ask for a whole number of at least 1"),
        (lambda seen: seen[0].received_mean, r'"received_mean" was not collected in h\.0\.attn; watch with collect='),
        (lambda seen: seen.rollout(9), r"token 9 does not exist: there are 5, 0 to 4"),
        (lambda seen: Seen(collect=("entropie",)), r"collect names 'entropie'; known are lse, entropy"),
    ],
)
def test_what_cannot_be_had_says_what_can(choose, message):
    with pytest.raises(ValueError, match=message):
        choose(two_layers())


def test_a_layer_goes_by_number_from_either_end_and_by_name():
    seen = two_layers()
    assert_close(seen["h.1.attn", -1].entropy, seen[1, 2].entropy, equal_nan=True)
    assert_close(seen[-1].entropy, seen[1].entropy, equal_nan=True)
    assert seen.layers == ["h.0.attn", "h.1.attn"]
    assert (len(seen), seen[-1, -1].name) == (2, "h.1.attn[2]")


def test_gradients_end_at_the_watcher():
    q, k = (torch.randn(1, 2, 3, 5, requires_grad=True) for _ in range(2))
    seen = seen_of(made_call("a", q=q, k=k))
    assert not seen[0].entropy.requires_grad
    assert not seen[0, 1].weights().requires_grad


def test_a_head_prints_its_role_with_the_evidence_and_its_means():
    head = two_layers()[1, 2]
    first, role, numbers, legend = repr(head).splitlines()
    assert first == "1.2  h.1.attn[2]"
    assert role == f"  {head.role.name}: {head.role.evidence}"
    assert re.search(r" \d\.\d\d .*threshold \d\.\d\d$", role)
    known = {"first" if name == "sink" else name: mean for name, mean in head.summary.items() if mean == mean}
    assert numbers == "  " + "  ".join(f"{name} {mean:.2f}" for name, mean in known.items())
    assert {"entropy", "first", "largest"} <= known.keys()
    assert legend == "  first: weight on the first token; in Python: .sink"


@pytest.mark.parametrize("view", [Head, SeenLayer])
@pytest.mark.parametrize("name", [*ROWS, *COLUMNS])
def test_a_statistic_is_documented_where_it_is_read(view, name):
    assert getattr(view, name).__doc__ == BY_NAME[name].about


def test_score_parts_give_every_weight_of_a_head():
    call = random_call(mask=causal(), Hkv=1)
    head = seen_of(call)[0, 2]
    q, k, lse, scale, is_causal = head.score_parts()
    weights = (scale * q @ k.mT - lse[..., None]).exp().tril()
    assert is_causal
    assert_close(weights, head.weights(), check_dtype=False)


def test_score_parts_of_biased_scores_are_refused():
    call = random_call(mask=causal(), bias=torch.randn(5, 5))
    with pytest.raises(
        ValueError, match=r"score_parts\(\) needs one call whose scores are q · k alone.*weights\(rows, cols\)"
    ):
        seen_of(call)[0, 0].score_parts()


def watched(mask=None, window=None, T=7):
    torch.manual_seed(3)
    layer = regard.MultiHeadAttention(6, 6, None, dropout=0.0, num_heads=2, window=window)
    with torch.no_grad(), regard.watch(layer) as seen:
        layer(torch.randn(2, T, 6), mask=mask)
    return seen[0]


def test_visible_keys_are_those_of_the_mask():
    allowed = (regard.causal() & regard.window(3)).dense(7, 7, torch.device("cpu")).expand(2, 2, 7, 7)
    assert torch.equal(watched(window=3).visible(), allowed)
    assert torch.equal(watched(window=3)[1].visible([5, 2]), allowed[:, 1, [5, 2]])


def test_a_visible_key_is_one_that_may_have_weight():
    one = watched(mask=torch.tensor([7, 4]))
    weights = one[1].weights()
    assert torch.equal(one.visible()[:, 1] & (weights > 0), weights > 0)


@pytest.mark.parametrize("n", [1, 3, 7, 11])
def test_a_cell_is_visible_where_a_key_in_it_is(n):
    one = watched(window=2)
    keys, size = one.visible(), min(n, 7)
    cells = one.visible_cells(n)
    edges = [i * 7 // size for i in range(size + 1)]
    for i in range(size):
        for j in range(size):
            block = keys[:, :, edges[i] : edges[i + 1], edges[j] : edges[j + 1]]
            assert torch.equal(cells[:, :, i, j], block.flatten(2).any(-1))


def test_one_text_of_a_batch_is_its_part_of_all():
    one = watched(mask=torch.tensor([7, 4]))
    assert torch.equal(one.visible(text=1), one.visible()[1:])
    assert torch.equal(one.weights([5, 2], text=1), one.weights([5, 2])[1:])


def test_a_causal_mask_hides_the_future_and_a_dense_one_is_not_looked_at():
    assert watched().hides_future
    assert watched(mask=torch.tensor([7, 4]), window=3).hides_future
    layer = regard.MultiHeadAttention(6, 6, None, dropout=0.0, num_heads=2, causal=False)
    with torch.no_grad(), regard.watch(layer) as seen:
        layer(torch.randn(2, 7, 6), mask=torch.ones(7, 7, dtype=torch.bool).tril())
    assert not seen[0].hides_future

"""What was seen, read back by layer and head."""

import json
import sys
import types

import pytest
import torch
from torch.testing import assert_close

from heads import dense
from heads.dense import random_call
from helpers import says_it_ourselves
from regard.attention.masks import causal, padding, window
from regard.heads import report
from regard.heads.call import WatchedCall
from regard.heads.report import EVERY, Seen

WORDS = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 9, 2]])


@pytest.fixture(autouse=True)
def _by_definition(monkeypatch):
    dense.stand_in(monkeypatch)


def seen_of(*calls, **options):
    seen = Seen(**options)
    for number, call in enumerate(calls):
        seen.add(0, number, call)
    return seen


def two_layers(**options):
    return seen_of(
        random_call(mask=causal(), tokens=WORDS, module="h.0.attn"),
        random_call(mask=causal() & window(3), Hkv=1, tokens=WORDS, module="h.1.attn"),
        **options,
    )


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


def test_token_ids_that_were_not_known_are_asked_for():
    with pytest.raises(ValueError, match=r'"induction" was not collected.*it needs the token ids: .*tokens=input_ids'):
        _ = seen_of(random_call())[0, 0].induction


def test_a_name_that_two_layers_share_is_no_choice():
    with pytest.raises(ValueError, match=r"2 layers are called 'attention'; choose by number"):
        seen_of(random_call(), random_call())["attention"]


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


def test_keeping_nothing_changes_no_number():
    torch.manual_seed(5)
    kept = two_layers()
    torch.manual_seed(5)
    assert two_layers(keep=False).summary() == kept.summary()


def test_what_is_kept_is_a_copy_that_later_changes_do_not_reach():
    call = random_call()
    seen = seen_of(call)
    before = seen[0, 0].weights()
    call.q.zero_()
    call.k.zero_()
    assert_close(seen[0, 0].weights(), before)


def test_a_bias_used_in_every_layer_is_kept_once_and_one_that_changed_in_between_is_not():
    bias = torch.randn(1, 1, 5, 5).expand(2, 3, 5, 5)
    seen = Seen()
    seen.add(0, 0, random_call(bias=bias))
    seen.add(0, 1, random_call(bias=bias))
    before = bias.clone()
    bias[0, 0].add_(1)
    seen.add(0, 2, random_call(bias=bias))
    first, second, third = (seen[i]._record.steps[0].call.bias for i in range(3))
    assert first.data_ptr() == second.data_ptr()
    assert first.untyped_storage().nbytes() == 5 * 5 * 4
    assert_close(first, before)
    assert_close(third, before + 1)


def test_gradients_end_at_the_watcher():
    q, k = (torch.randn(1, 2, 3, 5, requires_grad=True) for _ in range(2))
    seen = seen_of(WatchedCall("a", q=q, k=k))
    assert not seen[0].entropy.requires_grad
    assert not seen[0, 1].weights().requires_grad


def test_written_out_weights_are_kept_only_while_they_are_small_or_asked_for(monkeypatch):
    calls = [WatchedCall("a", weights=torch.rand(1, 2, 5, 5).softmax(-1)) for _ in range(3)]
    monkeypatch.setattr(report, "WEIGHTS_KEPT", 2 * 2 * 25 * 4)
    by_itself, asked = seen_of(*calls), seen_of(*calls, keep=True)
    assert_close(by_itself[1, 0].weights(), calls[1].weights[:, 0].double())
    with pytest.raises(ValueError, match="watch with keep=True"):
        by_itself[2, 0].weights()
    assert_close(asked[2, 0].weights(), calls[2].weights[:, 0].double())
    assert by_itself.summary() == asked.summary()


def test_the_summary_is_plain_numbers_that_leave_out_rows_without_a_value():
    call = random_call(mask=causal(), tokens=WORDS, real=torch.tensor([[True] * 5, [True] * 3 + [False] * 2]))
    summary = json.loads(json.dumps(seen_of(call).summary()))
    head = summary["layers"][0]["heads"][1]
    for name, value in dense.measure(call, {"entropy", "previous", "duplicate"}).items():
        assert head[name] == pytest.approx(float(value[:, 1].nanmean()), rel=1e-12)
    assert summary["forwards"] == 1
    assert summary["layers"][0]["name"] == "attention"


def test_rows_of_padding_change_no_mean():
    call = random_call(B=1, T=5, mask=causal())
    longer = WatchedCall(
        "attention",
        q=torch.nn.functional.pad(call.q, (0, 0, 3, 0), value=9.0),
        k=torch.nn.functional.pad(call.k, (0, 0, 3, 0), value=-9.0),
        scale=call.scale,
        mask=causal() & padding(torch.tensor([[False] * 3 + [True] * 5])),
        real=torch.tensor([[False] * 3 + [True] * 5]),
    )
    plain, padded = (seen_of(c).summary()["layers"][0]["heads"] for c in (call, longer))
    for one, other in zip(plain, padded, strict=True):
        assert one["role"] == other["role"]
        for name in ("entropy", "distance", "sink", "previous", "self", "largest"):
            assert one[name] == pytest.approx(other[name], rel=1e-12)


def test_the_table_fits_eighty_columns_and_says_how_many_more_there_are():
    seen = seen_of(*(random_call(H=11, mask=causal(), module=f"transformer.h.{i}.attn") for i in range(3)))
    lines = seen.table().splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == "  3 layers × 11 heads · 2 × 5 tokens · transformer.h.0–2.attn"
    assert lines[-2].startswith("  … and 9 more: ")
    assert lines[-1] == "  All of them: seen.table(all=True)"
    assert len(seen.table(all=True).splitlines()) == 3 + 33
    assert len(seen.table(layer=1).splitlines()) == 3 + 11


def test_heads_with_a_clear_role_come_first():
    previous = dense.pattern(lambda i: max(i - 1, 0), 17, weight=0.9)
    even = dense.pattern(lambda i: 0, 17, weight=0.0)
    seen = seen_of(WatchedCall("attention", weights=torch.cat([even, previous], 1)))
    rows = [line.split() for line in repr(seen).splitlines()[3:]]
    assert [row[:2] for row in rows] == [["0.1", "previous"], ["0.0", "broad"]]


def test_a_notebook_shows_the_same_table_and_no_markup_of_the_models():
    page = seen_of(random_call(module="<script>"))._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "<td>0.2</td>" in page


def test_an_empty_report_says_so():
    assert repr(Seen()) == "  nothing was seen yet"
    assert Seen().summary() == {"forwards": 0, "layers": []}


def test_a_head_tells_its_role_and_numbers():
    text = repr(two_layers()[1, 2])
    assert text.startswith("1.2  h.1.attn[2]\n")
    assert "entropy" in text
    assert "threshold" in text or "nothing passes" in text


def test_pandas_gets_a_row_a_head(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", types.SimpleNamespace(DataFrame=lambda rows: rows))
    rows = two_layers().to_pandas()
    assert [(row["layer"], row["head"]) for row in rows] == [(i, h) for i in range(2) for h in range(3)]
    assert {"module", "role", "score", "entropy", "induction"} <= rows[0].keys()


def test_without_pandas_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"to_pandas\(\) needs pandas, .* pip install pandas"):
        two_layers().to_pandas()


def test_the_callback_is_called_after_each_call():
    seen, called = Seen(), []
    seen.on_call = lambda forward, layer: called.append((forward, layer))
    for layer in range(3):
        seen.add(7, layer, random_call())
    assert called == [(7, 0), (7, 1), (7, 2)]


def test_rollout_is_the_product_of_the_layers():
    calls = [random_call(T=5, H=2, mask=causal(), Hkv=1) for _ in range(3)]
    expected = torch.eye(5).double().expand(2, 5, 5)
    for call in calls:
        expected = (0.5 * dense.probabilities(call).mean(1) + 0.5 * torch.eye(5)) @ expected
    seen = seen_of(*calls)
    assert_close(seen.rollout([4, 2]).double(), expected[:, [4, 2]], rtol=1e-6, atol=1e-6)
    assert_close(seen.rollout(slice(None)).double(), expected, rtol=1e-6, atol=1e-6)
    assert_close(seen.rollout(slice(None)).sum(-1), torch.ones(2, 5))


def test_rollout_through_layers_of_different_length_says_which_and_what_to_do():
    seen = seen_of(random_call(T=5), random_call(T=5, S=7), random_call(T=5))
    message = r"all of one length; these are 0: 5 × 5, 1: 5 × 7, 2: 5 × 5 .*choose some with layers=\[…\]"
    with pytest.raises(ValueError, match=message):
        seen.rollout(0)
    assert seen.rollout(0, layers=[0, 2]).shape == (2, 1, 5)


def test_comparing_a_report_with_itself_finds_no_change():
    seen = two_layers()
    comparison = seen.compare(seen)
    assert [change.size for change in comparison] == [0.0] * 6
    assert len(comparison.changed(0.01)) == 0


def test_comparing_names_the_head_that_changed_first():
    even, previous = (dense.pattern(lambda i: max(i - 1, 0), 17, weight=w) for w in (0.0, 0.9))
    before = seen_of(WatchedCall("a", weights=torch.cat([even, even], 1)))
    after = seen_of(WatchedCall("a", weights=torch.cat([even, previous], 1)))
    first, second = before.compare(after)
    assert (first.layer, first.head, first.role) == (0, 1, "broad → previous token")
    gained = after[0, 1].summary["previous"] - before[0, 1].summary["previous"]
    assert first.differences["previous"] == pytest.approx(gained)
    assert first.size >= gained > 0.7
    assert second.size == 0
    lines = repr(before.compare(after).changed(0.1)).splitlines()
    assert lines[0].startswith("  1 of 2 heads")
    assert max(map(len, lines)) <= 80


def test_reports_of_different_models_are_not_compared():
    with pytest.raises(ValueError, match=r"these have 1 layers with 3 heads and 1 layers with 2; watch the same"):
        seen_of(random_call()).compare(seen_of(random_call(H=2)))

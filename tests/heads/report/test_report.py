"""What was seen, read back by layer and head."""

import json
import sys
import types

import pytest
import torch
from torch.testing import assert_close

from heads import dense
from heads.dense import random_call
from heads.made_calls import made_call
from heads.reports import WORDS, seen_of, two_layers
from regard.attention.masks import causal, padding
from regard.heads.report.report import Seen


@pytest.fixture(autouse=True)
def _by_definition(monkeypatch):
    dense.stand_in(monkeypatch)


def test_a_name_that_two_layers_share_is_no_choice():
    with pytest.raises(ValueError, match=r"2 layers are called 'attention'; choose by number"):
        seen_of(random_call(), random_call())["attention"]


def test_keeping_nothing_changes_no_number():
    torch.manual_seed(5)
    kept = two_layers()
    torch.manual_seed(5)
    assert two_layers(keep=False).summary() == kept.summary()


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
    longer = made_call(
        "attention",
        q=torch.nn.functional.pad(call.attention.q, (0, 0, 3, 0), value=9.0),
        k=torch.nn.functional.pad(call.attention.k, (0, 0, 3, 0), value=-9.0),
        scale=call.attention.scale,
        mask=causal() & padding(torch.tensor([[False] * 3 + [True] * 5])),
        real=torch.tensor([[False] * 3 + [True] * 5]),
    )
    plain, padded = (seen_of(c).summary()["layers"][0]["heads"] for c in (call, longer))
    for one, other in zip(plain, padded, strict=True):
        assert one["role"] == other["role"]
        for name in ("entropy", "distance", "sink", "previous", "self", "largest"):
            assert one[name] == pytest.approx(other[name], rel=1e-12)


def test_an_empty_report_says_so():
    assert repr(Seen()) == "  nothing was seen yet"
    assert Seen().summary() == {"forwards": 0, "layers": []}


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


def test_a_layer_that_is_chosen_twice_counts_twice():
    seen = seen_of(random_call(T=5), random_call(T=5))
    once, twice = seen.rollout(slice(None), layers=[1]), seen.rollout(slice(None), layers=[1, 1])
    assert_close(twice, once @ once, rtol=1e-5, atol=1e-6)


def test_rollout_needs_a_layer():
    with pytest.raises(ValueError, match=r"a rollout needs at least one layer; 1 were seen and 0 chosen"):
        seen_of(random_call(T=5)).rollout(0, layers=[])

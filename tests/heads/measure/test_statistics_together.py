"""Calls that are measured together have the statistics that they have alone."""

import copy
import pickle

import pytest
import torch
from torch.testing import assert_close

import regard
from heads.dense import random_call
from regard.attention.masks import causal, padding, window
from regard.heads.calls.basis import Basis, unknown
from regard.heads.calls.call import changed
from regard.heads.measure import statistics
from regard.heads.measure.kernels import exact_weights
from regard.heads.measure.kernels.exact_weights import FEW
from regard.heads.measure.registry import COLUMNS, DEFAULT, ROWS
from regard.heads.measure.statistics import WaitingCalls, form_of

EVERY = frozenset({*DEFAULT, *ROWS, *COLUMNS, "histogram", "top", "map"})
IDS = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 9, 2]])
REAL = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])


@pytest.mark.parametrize(
    "sizes, known",
    [
        ({"B": 1, "Hkv": 1}, {"mask": causal(), "tokens": IDS[:1]}),
        ({}, {"mask": causal(), "tokens": IDS}),
        ({}, {"mask": causal(), "real": REAL}),
        ({"S": 11}, {"mask": causal(), "first": torch.tensor([0, 2])}),
        ({"S": 11}, {"across": True}),
        ({}, {"basis": Basis(positions=unknown("blocks"))}),
    ],
)
def test_calls_of_one_form_are_measured_as_they_would_be_alone(sizes, known):
    waiting, calls = WaitingCalls(), [random_call(**sizes, **known) for _ in range(3)]
    assert all(waiting.add(call) for call in calls)
    results = waiting.measured(EVERY)
    assert [call for call, _ in results] == calls
    for call, measured in results:
        right = statistics.measure(call, EVERY)
        assert measured.keys() == right.keys()
        for name, value in right.items():
            assert_close(measured[name], value, rtol=1e-6, atol=1e-6, equal_nan=True, msg=lambda m, n=name: f"{n}: {m}")
    assert waiting.measured(EVERY) == []


def test_each_call_has_its_own_ids_and_lse():
    waiting, calls = WaitingCalls(), [random_call(mask=causal(), tokens=ids) for ids in (IDS, IDS.flip(1), IDS % 3)]
    calls = [changed(call, lse=statistics.measure(call, frozenset({"lse"}))["lse"]) for call in calls]
    assert all(waiting.add(call) for call in calls)
    for call, measured in waiting.measured(frozenset()):
        right = statistics.measure(call, frozenset())
        assert set(right) == {"induction", "duplicate"}
        for name, value in right.items():
            assert_close(measured[name], value, equal_nan=True)


@pytest.mark.parametrize(
    "other",
    [
        random_call(mask=causal(), T=7),
        random_call(mask=causal(), Hkv=1),
        random_call(),
        random_call(mask=causal() & window(3)),
        random_call(mask=causal() & padding(REAL)),
        random_call(mask=causal(), real=REAL),
        random_call(mask=causal(), tokens=IDS),
        random_call(mask=causal(), bias=torch.zeros(2, 3, 5, 5)),
        random_call(mask=causal(), alibi=torch.ones(3)),
        random_call(mask=causal(), dropped=IDS, first=torch.tensor([-1, 0])),
        random_call(mask=causal(), extra=1),
        random_call(mask=causal()).with_attention(scale=3.0),
        random_call(mask=causal(), basis=Basis(positions=unknown("blocks"))),
        random_call(mask=causal()).with_attention(q=torch.randn(2, 3, 5, 7).double()),
    ],
)
def test_a_call_of_another_form_does_not_wait_with_the_others(other):
    waiting, one = WaitingCalls(), random_call(mask=causal())
    assert waiting.add(one)
    assert not waiting.add(other)
    assert [call for call, _ in waiting.measured(EVERY)] == [one]


def test_only_so_many_wait_that_a_cpu_computes_them_at_once(monkeypatch):
    monkeypatch.setattr(exact_weights, "FEW", 5 * 2 * 3 * 5 * 5)
    waiting = WaitingCalls()
    assert [waiting.add(random_call(mask=causal())) for _ in range(6)] == [True] * 5 + [False]


def test_on_a_gpu_calls_are_joined_while_launching_takes_longer_than_computing():
    call = random_call(mask=causal())
    form = form_of(call)._replace(device=torch.device("cuda"), dtype=torch.bfloat16)

    def most_calls(B, H, T):
        sizes = torch.Size((B, H, T, 64))
        return form._replace(queries=sizes, keys=sizes).most_calls

    assert [most_calls(1, 12, 64), most_calls(16, 12, 1024), most_calls(1, 12, 16384)] == [1365, 5, 0]
    assert most_calls(1, 40_000, 2) == 1  # B · H of one launch


def test_long_texts_and_those_with_a_bias_do_not_wait():
    assert not WaitingCalls().add(random_call(1, 1, int(FEW**0.5), D=1))
    assert not WaitingCalls().add(random_call(mask=causal(), bias=torch.zeros(2, 3, 5, 5)))


def model_of(layers):
    return regard.GPT(regard.GPTConfig(vocab_size=11, context_length=7, num_layers=layers, num_heads=2, d_model=8))


def test_all_layers_of_a_model_are_measured_at_once_before_the_block_ends(monkeypatch):
    model, ids = model_of(layers=5), IDS[:, :3]
    sizes, measure = [], statistics.measure
    monkeypatch.setattr(statistics, "measure", lambda call, collect: sizes.append(call.sizes) or measure(call, collect))
    with regard.watch(model) as seen:
        model(ids)
        assert sizes == []
    assert sizes == [(5 * 2, 2, 3, 3)]
    assert len(seen) == 5


def test_a_report_that_is_read_in_between_has_all_calls_so_far():
    model = model_of(layers=3)
    with regard.watch(model) as seen:
        model(IDS)
        assert len(seen) == 3
        before = seen[2, 1].entropy
        model(IDS)
    assert torch.equal(seen.forwards[0][2, 1].entropy, before)
    assert torch.equal(seen.forwards[1][2, 1].entropy, before)


def test_calls_whose_measuring_failed_still_wait(monkeypatch):
    model, measure = model_of(layers=3), statistics.measure

    def fail(call, collect):
        raise MemoryError("too little memory")

    monkeypatch.setattr(statistics, "measure", fail)
    with pytest.raises(MemoryError, match="too little"), regard.watch(model) as seen:
        model(IDS)
    monkeypatch.setattr(statistics, "measure", measure)
    assert len(seen) == 3


def test_a_report_can_be_copied_and_pickled():
    model = model_of(layers=3)
    with regard.watch(model) as seen:
        model(IDS)
    for again in (copy.deepcopy(seen), pickle.loads(pickle.dumps(seen))):
        assert torch.equal(again[2, 1].entropy, seen[2, 1].entropy)

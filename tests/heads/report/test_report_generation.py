"""Several forwards in one watch: the steps of a generation are one text, other runs stay apart."""

import pytest
import torch
from torch.testing import assert_close

import regard
from heads import dense, models
from heads.dense import generation, random_call
from heads.made_calls import made_call
from heads.reports import steps_seen
from regard.attention.masks import causal
from regard.heads.report.report import Seen

ALL = (*dense.ROWS, "received", "received_mean", "histogram")
STEPS = [5, 1, 1, 3, 1]


@pytest.fixture(autouse=True)
def _by_definition(monkeypatch):
    dense.stand_in(monkeypatch)


@pytest.mark.parametrize("keep", [None, False])
def test_a_generation_step_by_step_has_the_statistics_of_the_whole_text(keep):
    tokens = torch.randint(0, 4, (2, 11))
    whole, steps = generation(STEPS, Hkv=1, tokens=tokens)
    seen = steps_seen(steps, collect=ALL, keep=keep)
    assert len(seen.forwards) == 1
    expected = dense.measure(whole, ALL)
    for name in ALL:
        assert_close(getattr(seen[0], name), expected[name], equal_nan=True)


def test_a_rollout_goes_through_a_generation():
    (one, first), (two, second) = generation(STEPS), generation(STEPS)
    both = Seen()
    for layer, call in enumerate((one, two)):
        both.add(0, layer, call)
    assert_close(steps_seen(first, second).rollout([10, 3]), both.rollout([10, 3]))


def test_cross_attention_goes_on_with_keys_that_stay():
    _, steps = generation([1, 1, 1])
    k = torch.randn(2, 3, 7, 5)
    q = torch.randn(2, 3, 3, 5)
    cross = [made_call("cross", q=q[:, :, i : i + 1], k=k) for i in range(3)]
    seen = steps_seen(steps, cross)
    assert len(seen.forwards) == 1
    rows = [dense.probabilities(call) for call in cross]
    assert_close(seen["cross"].weights(), torch.cat(rows, 2))
    assert_close(seen["cross"].received, torch.cat(rows, 2).sum(2))
    assert seen[1].record.shared.shape == k.shape


def test_a_decoder_may_go_on_alone_whatever_its_number():
    seen = Seen()
    _, steps = generation([1, 1], module="decoder")
    seen.add(0, 0, random_call(T=7, module="encoder"))
    seen.add(0, 1, steps[0])
    seen.add(1, 0, steps[1])
    assert len(seen.forwards) == 1
    assert seen["encoder"].entropy.shape == (2, 3, 7)
    assert seen["decoder"].entropy.shape == (2, 3, 2)


def test_an_encoder_that_ran_by_itself_is_not_mixed_with_its_decoder():
    seen = Seen()
    _, steps = generation([1, 1], module="decoder")
    seen.add(0, 0, random_call(T=7, module="encoder"))
    for forward, call in enumerate(steps, 1):
        seen.add(forward, 0, call)
    assert len(seen.forwards) == 2
    assert seen.layers == ["encoder", "decoder"]
    assert [tuple(seen[i].entropy.shape) for i in range(2)] == [(2, 3, 7), (2, 3, 2)]


@pytest.mark.parametrize(
    "second",
    [
        pytest.param({"T": 5}, id="the same length again"),
        pytest.param({"T": 6}, id="another length"),
        pytest.param({"T": 1}, id="one token without a cache"),
        pytest.param({"T": 1, "S": 6, "B": 3}, id="another batch"),
        pytest.param({"T": 2, "S": 9}, id="keys from nowhere"),
    ],
)
def test_another_run_is_another_forward(second):
    seen = Seen()
    seen.add(0, 0, random_call(T=5))
    seen.add(1, 0, random_call(**second))
    assert [len(one[0].record.steps) for one in seen.forwards] == [1, 1]


def test_of_several_forwards_one_must_be_chosen():
    seen = Seen()
    for forward in range(3):
        for layer in range(6):
            seen.add(forward, layer, random_call(module=f"h.{layer}"))
    with pytest.raises(ValueError, match=r"3 forwards were seen; choose one: seen\.forwards\[0\]\[5, 1\]$"):
        _ = seen[5, 1].entropy
    with pytest.raises(ValueError, match=r"choose one: seen\.forwards\[0\]\['h\.4'\]$"):
        _ = seen["h.4"]
    with pytest.raises(ValueError, match=r"3 forwards were seen; choose one: seen\.forwards\[0\]\.rollout"):
        seen.rollout(0)
    assert seen.forwards[2][5, 1].entropy.shape == (2, 5)


def test_the_table_averages_over_all_rows_of_all_forwards():
    calls = [random_call(B=1, T=T, mask=causal()) for T in (5, 11)]
    seen = Seen()
    for forward, call in enumerate(calls):
        seen.add(forward, 0, call)
    rows = torch.cat([dense.measure(call, {"entropy"})["entropy"] for call in calls], 2)
    assert seen.summary()["layers"][0]["heads"][1]["entropy"] == pytest.approx(float(rows[:, 1].mean()), rel=1e-12)
    assert "2 forwards" in repr(seen)
    assert "5–11 tokens" in repr(seen)


def test_looking_while_a_forward_runs_does_not_split_it():
    (_, first), (_, second) = generation([5, 1]), generation([5, 1])
    seen = Seen()
    for forward in range(2):
        for layer, steps in enumerate((first, second)):
            seen.add(forward, layer, steps[forward])
            repr(seen)
    assert len(seen.forwards) == 1
    assert seen[1].entropy.shape == (2, 3, 6)


def test_a_module_that_runs_twice_under_one_number_starts_another_forward():
    seen = Seen()
    for _ in range(2):
        seen.add(0, 0, random_call())
    assert len(seen.forwards) == 2


def test_what_heads_hand_over_is_joined_over_the_steps_of_a_generation():
    model, x = models.gpt2(), models.ids()
    with regard.watch(model, values=True) as seen:
        whole = model.generate(x, max_new_tokens=3, min_new_tokens=3, do_sample=False)
    with regard.watch(model, values=True) as again:
        model(whole[:, :-1])
    torch.testing.assert_close(seen[1].context, again[1].context, rtol=0, atol=1e-5)

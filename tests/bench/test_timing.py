"""Clocks, the order of rounds, and ratios."""

import time

import pytest
import torch

from regard.bench import timing
from regard.bench.timing import Timing, interleave, ratios, schedule


def test_every_round_holds_every_contender_in_a_new_order():
    names = ["a", "b", "c", "d", "e"]
    plan = schedule(dict.fromkeys(names, 11), seed=3)
    assert [sorted(together) for together in plan] == [names] * 11
    assert len({tuple(together) for together in plan}) > 5


def test_the_order_depends_on_the_seed_and_on_nothing_else():
    wanted = dict.fromkeys("abcdef", 7)
    assert schedule(wanted, seed=1) == schedule(wanted, seed=1)
    assert schedule(wanted, seed=1) != schedule(wanted, seed=2)


def test_a_slow_contender_has_its_few_rounds_spread_over_the_run():
    plan = schedule({"quick": 12, "slow": 3})
    assert [r for r, together in enumerate(plan) if "slow" in together] == [3, 7, 11]
    assert all("quick" in together for together in plan)


def test_nobody_to_time_is_no_round():
    assert schedule({}) == []
    assert interleave({}) == {}


def test_calls_are_interleaved_and_not_run_one_contender_after_the_other():
    ran = []

    def clock(call, times):
        call()
        return 0.06  # long enough that one call is one measurement

    interleave({name: (lambda name=name: ran.append(name)) for name in "ab"}, clock, rounds=13, seed=5)
    timed = ran[2:]  # one call each to find out how long they take
    assert timed.count("a") == timed.count("b") == 13
    assert all(sorted(timed[i : i + 2]) == ["a", "b"] for i in range(0, 26, 2))
    assert timed != ["a", "b"] * 13


def test_best_and_median_are_of_the_rounds_and_per_call():
    durations = iter([9.0, 5.0, 3.0, 4.0])  # the first is only to find out
    found = interleave({"a": lambda: None}, lambda call, times: next(durations), rounds=3, seconds=100.0)
    assert found == {"a": Timing(best=3.0, median=4.0, rounds=3, calls=1)}


def test_a_slow_call_gets_two_rounds_and_a_quick_one_is_repeated_in_each():
    def clock(call, times):
        return times * call()

    calls = {"slow": lambda: 7.0, "quick": lambda: 0.01}
    found = interleave(calls, clock, rounds=17, seconds=3.0, at_least=0.05)
    assert (found["slow"].rounds, found["slow"].calls) == (2, 1)
    assert (found["quick"].rounds, found["quick"].calls) == (17, 5)
    assert found["quick"].best == pytest.approx(0.01)


def test_the_wall_clock_counts_all_calls():
    assert 0.02 <= timing.wall(lambda: time.sleep(0.01), 2) < 1


def test_progress_is_told_before_every_measurement():
    told = []
    interleave({"a": lambda: None}, lambda call, times: 1.0, rounds=3, seconds=9.0, tick=lambda *at: told.append(at))
    assert told == [(0, 3), (1, 3), (2, 3)]


def test_ratios_are_to_the_fastest_and_to_ours():
    timings = {"we": Timing(3.0, 9.0, 2, 1), "they": Timing(2.0, 8.0, 2, 1), "others": Timing(6.0, 7.0, 2, 1)}
    found = ratios(timings, ours="we")
    assert {n: (r.to_fastest, r.to_ours) for n, r in found.items()} == {
        "we": (1.5, 1.0),
        "they": (1.0, pytest.approx(2 / 3)),
        "others": (3.0, 2.0),
    }


def test_without_ours_there_is_no_ratio_to_ours():
    assert ratios({"they": Timing(2.0, 2.0, 2, 1)}, ours="we")["they"].to_ours is None
    assert ratios({}, ours="we") == {}


def test_memory_on_the_cpu_is_not_counted_but_what_is_free_is_known():
    assert timing.peak_memory(lambda: torch.ones(7), "cpu") is None
    assert timing.free_memory("cpu") > 1 << 20


def test_the_median_counts_where_the_clock_of_the_device_varies():
    found = ratios(
        {"we": Timing(1.0, 4.0, 3, 1, by_median=True), "they": Timing(2.0, 2.0, 3, 1, by_median=True)}, ours="we"
    )
    assert (found["we"].to_fastest, found["they"].to_ours) == (2.0, 0.5)


def test_a_timing_is_written_in_milliseconds():
    timing = Timing(best=0.003, median=0.004, rounds=5, calls=7, by_median=True)
    assert timing.as_json() == {"ms": 4.0, "best_ms": 3.0, "median_ms": 4.0, "rounds": 5, "calls": 7}


def test_a_median_far_from_the_best_is_noise():
    quiet, noisy = Timing(2.0, 2.9, 3, 1), Timing(2.0, 3.0, 3, 1)
    assert (quiet.is_noisy, noisy.is_noisy) == (False, True)
    assert noisy.noise == "the median is 1.5 × the best"


def test_the_median_counts_only_on_request():
    durations = iter([9.0, 5.0, 3.0, 4.0])
    clock = lambda call, times: next(durations)  # noqa: E731
    found = interleave({"a": lambda: None}, clock, rounds=3, seconds=100.0, by_median=True)
    assert (found["a"].counts, found["a"].best) == (4.0, 3.0)

"""Every clock of a device."""

import pytest
import torch

from regard.bench import clocks, timing
from regard.bench.clocks import time_by_all_clocks
from regard.bench.progress import StageProgress
from regard.bench.settings import Setting

CALLS = {"we": lambda: "willing", "they": lambda: "stubborn"}


@pytest.fixture
def _gpu(monkeypatch):
    """A GPU that takes 0.3 s in eager and 0.2 s by graph, and cannot capture one of the calls."""

    def capture(call):
        if call() == "stubborn":
            raise RuntimeError("operation not permitted")
        return call

    monkeypatch.setattr(timing, "eager", lambda call, times: 0.3)
    monkeypatch.setattr(timing, "device", lambda call, times: 0.2)
    monkeypatch.setattr(timing, "capture", capture)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)


def test_a_cpu_has_one_clock_and_its_best_round_counts():
    setting = Setting("cpu", torch.float32, rounds=3, seconds=0.01)
    timings, failures = time_by_all_clocks(CALLS, setting, "toy", StageProgress())
    assert {clock: list(by_name) for clock, by_name in timings.items()} == {"wall": ["we", "they"]}
    assert failures == {}
    assert not timings["wall"]["we"].by_median


@pytest.mark.usefixtures("_gpu")
def test_a_gpu_has_two_clocks_and_a_failed_capture_has_a_reason():
    setting = Setting("cuda", torch.bfloat16, rounds=3, seconds=9.0)
    timings, failures = time_by_all_clocks(CALLS, setting, "toy", StageProgress())
    assert {clock: list(by_name) for clock, by_name in timings.items()} == {"eager": ["we", "they"], "device": ["we"]}
    assert (timings["eager"]["we"].counts, timings["device"]["we"].counts) == (0.3, 0.2)
    assert timings["device"]["we"].by_median
    assert failures == {"they": "RuntimeError: operation not permitted"}


@pytest.mark.usefixtures("_gpu")
def test_without_graphs_nothing_is_captured():
    setting = Setting("cuda", torch.bfloat16, rounds=2, seconds=9.0)
    timings, failures = time_by_all_clocks(CALLS, setting, "toy", StageProgress(), graphs=False)
    assert (list(timings), failures) == (["eager"], {})


def test_every_clock_has_its_stage(capsys):
    time_by_all_clocks(CALLS, Setting("cpu", torch.float32, rounds=2, seconds=0.01), "toy: step", StageProgress())
    assert capsys.readouterr().err == "  toy: step, wall clock ...\n"
    assert set(clocks.CLOCKS) == {"wall", "device", "eager"}

"""kill −9 at 20 random moments, ten of them in the midst of a write: every run goes on like the unbroken one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

KILLS = 20


pytestmark = pytest.mark.slow  # runs are killed and resumed, one after the other


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    if not hasattr(os, "fork"):
        pytest.skip("needs os.fork")
    command = [
        sys.executable,
        str(Path(__file__).parent / "killing.py"),
        str(tmp_path_factory.mktemp("runs")),
        str(KILLS),
    ]
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert found.returncode == 0, found.stderr
    return [json.loads(line) for line in found.stdout.splitlines()]


def test_every_resumed_run_equals_the_unbroken_one_bit_for_bit(runs):
    unbroken, *killed = runs
    assert len(killed) == KILLS
    for run in killed:
        assert run["log"] == unbroken["log"]
        assert run["state"] == unbroken["state"]
        assert run["model"] == unbroken["model"]


def test_the_log_has_each_step_once(runs):
    for run in runs:
        assert [line[0] for line in run["log"]] == list(range(1, 25))


def test_nothing_half_written_is_left(runs):
    assert all(run["left"] == [] for run in runs)


def test_the_moments_were_hard_ones(runs):
    killed = runs[1:]
    assert sum(run["writing"] for run in killed) >= KILLS // 2  # in the midst of a write
    assert len({run.get("logged") for run in killed}) >= 5  # early and late

"""A worker's process: what it is given, and what is said when it fails."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from regard.school.sandbox.process import WorkerDied, WorkerProcess
from regard.school.sandbox.protection import Protection, ProtectionMissing, ProtectionReport


def test_secrets_of_the_environment_are_kept_from_other_peoples_code(monkeypatch):
    monkeypatch.setenv("REGARD_TEST_SECRET", "thirteen")
    process = object.__new__(WorkerProcess)
    process.protection = Protection.for_others()
    assert "REGARD_TEST_SECRET" not in process._environment()
    assert process._environment()["CUDA_VISIBLE_DEVICES"] == ""
    process.protection = Protection.for_own_file()
    assert process._environment()["REGARD_TEST_SECRET"] == "thirteen"


def test_a_worker_can_be_started_before_torch_is_imported():
    code = "import sys, regard.school.sandbox.process as one; print('torch' in sys.modules, one._home_of_torch())"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.split()
    assert said == ["False", str(Path(torch.__file__).parents[1])]


def test_a_worker_that_cannot_start_says_why(monkeypatch):
    monkeypatch.setattr("regard.school.sandbox.process.START", "import no_such_module")
    process = WorkerProcess(Protection.for_own_file())
    with pytest.raises(
        WorkerDied, match="ended while it started: ModuleNotFoundError: No module named 'no_such_module'"
    ):
        process.wait_until_ready()
    process.close()


@pytest.fixture
def idle(monkeypatch):
    """A process that does nothing, in place of a worker."""
    monkeypatch.setattr("regard.school.sandbox.process.START", "import time; time.sleep(1000)")
    process = WorkerProcess(Protection.for_others())
    yield process
    process.close()


def test_a_missing_layer_is_an_error_unless_it_may_be_missing(idle):
    idle._report = ProtectionReport(("limits",), {"files": "not here"})
    with pytest.raises(ProtectionMissing, match="cannot protect itself from submissions; missing: only libraries"):
        idle.wait_until_ready()
    idle.protection = Protection.for_others(missing_allowed=True)
    assert idle.wait_until_ready().missing == {"files": "not here"}
    idle._report = None  # it is no worker, and does not end by itself


def test_closing_ends_a_process_that_is_still_starting(idle):
    pid = idle._process.pid
    idle.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.skipif(sys.platform == "win32", reason="needs ps")
def test_the_memory_of_a_process_can_be_read(idle):
    assert idle.resident_bytes() > 1 << 20

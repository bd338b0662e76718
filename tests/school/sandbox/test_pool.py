"""Many submissions at a time: outcomes in order, progress, and no job lost for what another one does."""

import os
import threading
import time

import pytest
import torch

from regard.school.sandbox.limits import RunLimits
from regard.school.sandbox.pool import available_processors, run_all
from regard.school.sandbox.protection import Protection, ProtectionMissing, ProtectionReport
from regard.school.sandbox.worker import Job
from school.sandbox.attacks import DRIVER
from school.sandbox.conftest import SMALL


def write(folder, sources):
    jobs = []
    for number, source in enumerate(sources):
        path = folder / f"homework_{number}.py"
        path.write_text(source)
        jobs.append(Job(path, DRIVER, {"x": torch.tensor([2.0, 3.0, 5.0])}))
    return jobs


def test_outcomes_are_in_the_order_of_the_jobs_and_progress_is_told(tmp_path):
    sources = [f"def f(x): return x * {number}" for number in range(7)]
    # Without protection, this one kills its worker, and the next worker too.
    sources[3] = "import os; os.kill(os.getppid(), 9)"
    jobs, seen = write(tmp_path, sources), []

    def progress(done, total, job, outcome):
        seen.append((done, total, outcome.word))
        assert threading.current_thread() is threading.main_thread()

    outcomes = run_all(jobs, 2, limits=SMALL, protection=Protection.for_own_file(), progress=progress)
    assert [outcome.word for outcome in outcomes] == ["finished"] * 3 + ["not run"] + ["finished"] * 3
    for number in (0, 1, 2, 4, 5, 6):
        torch.testing.assert_close(outcomes[number].tensors["out"], number * jobs[number].tensors["x"])
    assert outcomes[3].sentence == ("It was not run: the worker's process died during the job, and again in a new one.")
    assert [(done, total) for done, total, _ in seen] == [(number, 7) for number in range(1, 8)]


def test_an_error_ends_runs_that_go_on(tmp_path):
    def progress(*arguments):
        raise KeyError("stop here")

    jobs = write(tmp_path, ["f = abs", "import time; time.sleep(1000)"])
    begin, before = time.monotonic(), threading.active_count()
    with pytest.raises(KeyError, match="stop here"):
        run_all(jobs, 1, limits=RunLimits(wall_seconds=100), protection=Protection.for_own_file(), progress=progress)
    assert threading.active_count() == before
    assert time.monotonic() - begin < 95  # not by its limit


def test_a_missing_layer_is_an_error_for_all(tmp_path, monkeypatch):
    def wait_until_ready(self):
        raise ProtectionMissing(ProtectionReport(("limits",), {"files": "needs Linux"}))

    monkeypatch.setattr("regard.school.sandbox.process.WorkerProcess.wait_until_ready", wait_until_ready)
    with pytest.raises(ProtectionMissing, match="needs Linux"):
        run_all(write(tmp_path, ["f = abs"] * 3), 2)


def test_no_jobs_have_no_outcomes():
    assert run_all([]) == []


def test_a_number_of_workers_below_one_is_refused():
    with pytest.raises(ValueError, match=r"workers \(0\) must be at least 1"):
        run_all([], 0)


def test_there_is_at_least_one_processor():
    assert 1 <= available_processors() <= (os.cpu_count() or 1)

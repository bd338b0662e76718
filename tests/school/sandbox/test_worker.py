"""A worker: what a submission gets and returns, and how runs end that are not attacks."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import jaxtyping
import pytest
import torch

from processes import is_alive
from regard.school.sandbox.child import STARTED
from regard.school.sandbox.limits import RunLimits
from regard.school.sandbox.outcome import FailedLine
from regard.school.sandbox.packets import pack
from regard.school.sandbox.process import Ended, RunCancelled, WorkerProcess
from regard.school.sandbox.protection import Protection, ProtectionReport
from regard.school.sandbox.worker import Job, Received, Worker, find_entry, judge
from school.sandbox.attacks import DRIVER
from school.sandbox.conftest import SMALL


@pytest.fixture
def submit(tmp_path):
    """Writes a submission, and makes a job of it."""

    def write(source: str, driver: str = DRIVER, **options) -> Job:
        path = tmp_path / "homework.py"
        path.write_text(source)
        return Job(path, driver, **{"tensors": {"x": torch.randn(3, 5)}, **options})

    return write


def test_tensors_and_values_go_in_and_come_out(worker, submit):
    driver = "def drive(s, t, v): return {'out': s.f(t['x'])}, {'heads': v['heads'] + s.n}"
    job = submit("n = 4\ndef f(x): return x.mT @ x", driver, values={"heads": 3})
    outcome = worker.run(job)
    torch.testing.assert_close(outcome.tensors["out"], job.tensors["x"].mT @ job.tensors["x"])
    assert (outcome.word, outcome.values, outcome.failure) == ("finished", {"heads": 7}, None)
    assert outcome.protection == worker.protection


def test_a_run_that_is_cancelled_leaves_the_worker_warm(worker, submit, monkeypatch):
    process, asked = worker._process, iter([False, False, True])
    monkeypatch.setattr(worker, "is_cancelled", lambda: next(asked))
    with pytest.raises(RunCancelled):
        worker.run(submit("def f(x):\n    while True: pass"))
    assert next(asked, None) is None
    job = submit("def f(x): return -x")
    assert worker.run(job).finished
    assert worker._process is process


def test_what_is_printed_is_kept_in_order(worker, submit):
    source = (
        "import sys, os\nprint('one')\nprint('two', file=sys.stderr)\nos.write(1, b'three \\xff\\n')\ndef f(x): "
        "print('four', end=''); return x"
    )
    assert worker.run(submit(source)).output == "one\ntwo\nthree \\xff\nfour"


def test_a_failure_has_its_stage_and_its_lines(worker, submit):
    failure = worker.run(submit("def g(x):\n    return x @ x\n\ndef f(x):\n    return g(x)\n")).failure
    assert (failure.type, failure.stage) == ("RuntimeError", "run")
    assert failure.lines == (FailedLine("homework.py", 5, "f"), FailedLine("homework.py", 2, "g"))
    assert failure.message.startswith("mat1 and mat2 shapes cannot be multiplied")
    assert worker.run(submit("import nothing_like_it")).failure.stage == "load"


@pytest.mark.parametrize(
    ("driver", "message"),
    [
        ("def drive(s, t, v): return s", "drive returned module; it returns a dict of tensors"),
        ("def drive(s, t, v): return {'out': 7}", "'out' is of type int; a packet holds tensors by name"),
        ("def drive(s, t, v): return {}, print", "not JSON serializable"),
        ("def other(): pass", "drive"),
    ],
)
def test_a_wrong_driver_is_told_from_a_wrong_submission(worker, submit, driver, message):
    failure = worker.run(submit("", driver)).failure
    assert failure.stage == "driver"
    assert message in failure.message


def test_a_run_knows_nothing_of_the_one_before(worker, submit):
    worker.run(
        submit("import torch, os, builtins\ntorch.kept = builtins.kept = 7\nopen('kept', 'w')\ndef f(x): return x")
    )
    source = "import torch, os\nassert not hasattr(torch, 'kept') and os.listdir('.') == []\nkept\ndef f(x): return x"
    assert worker.run(submit(source)).failure.type == "NameError"


def test_a_folder_is_imported_by_its_entry(worker, tmp_path):
    folder = tmp_path / "group-7"
    folder.mkdir()
    (folder / "layer.py").write_text("from helper import double\ndef f(x): return double(x)")
    (folder / "helper.py").write_text("def double(x): return x + x")
    x = torch.randn(3, 5)
    outcome = worker.run(Job(folder, DRIVER, {"x": x}, entry="layer.py"))
    torch.testing.assert_close(outcome.tensors["out"], x + x)
    assert worker.run(Job(folder, DRIVER, {"x": x})).sentence == (
        "It was not run: group-7 has 2 Python files; name the one to import."
    )


def test_a_link_in_a_folder_leads_nowhere(worker, tmp_path):
    (tmp_path / "key").write_text("the answers")
    folder = tmp_path / "group-7"
    folder.mkdir()
    (folder / "layer.py").write_text("import os; open(os.path.dirname(__file__) + '/notes')")
    (folder / "notes").symlink_to(tmp_path / "key")
    assert worker.run(Job(folder, DRIVER)).failure.type == "PermissionError"


def test_a_submission_that_is_a_link_is_not_run(worker, tmp_path):
    (tmp_path / "key.py").write_text("answers = 7")
    (tmp_path / "homework.py").symlink_to(tmp_path / "key.py")
    outcome = worker.run(Job(tmp_path / "homework.py", DRIVER))
    assert outcome.sentence == "It was not run: homework.py is a symbolic link; a submission is a file or a folder."


def test_what_a_submission_needs_can_be_imported(worker, submit):
    names = "math, typing, dataclasses, einops, numpy, torch.nn.functional, collections, torch.nn.attention"
    source = "".join(f"import {name}\n" for name in names.split(", ") if name != "einops")
    source += "import tempfile\nwith tempfile.TemporaryFile() as file: file.write(b'x')\n"
    source += "x = torch.ones(3, 5, requires_grad=True); torch.nn.Linear(5, 7)(x).sum().backward()\n"
    source += "torch.set_num_threads(2)\ndef f(x): return (torch.ones(300, 300) @ torch.ones(300, 300))[:1, :1]"
    outcome = worker.run(submit(source))
    assert outcome.finished, outcome
    assert outcome.tensors["out"].item() == 300


def test_ones_own_file_can_import_regard_and_its_neighbours(own_worker, submit, tmp_path):
    (tmp_path / "neighbour.py").write_text("n = 7")
    outcome = own_worker.run(submit("import regard.steps, neighbour\ndef f(x): return x + neighbour.n"))
    assert outcome.finished, outcome
    assert own_worker.protection == ProtectionReport(("limits",), {})


def test_a_worker_can_import_for_ones_own_file_and_be_started_before(submit):
    protection = Protection.for_own_file(imported=["regard.steps", "colorsys"])
    with Worker(SMALL, protection, process=WorkerProcess(protection)) as worker:
        source = "import sys\ndef f(x): return x * all(n in sys.modules for n in ('regard.steps', 'colorsys'))"
        job = submit(source)
        torch.testing.assert_close(worker.run(job).tensors["out"], job.tensors["x"])


def test_a_driver_can_load_the_file_by_itself(own_worker, submit):
    driver = "def drive(path, t, v): return {}, open(path).read()"
    assert own_worker.run(submit("no python", driver, loads=False)).values == "no python"


def test_what_ones_own_file_started_ends_with_it(own_worker, submit, tmp_path):
    source = (
        "import os, time\n"
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(1000)\n    os._exit(0)\n"
        "pid = os.fork()\nif pid == 0: os.setsid(); time.sleep(1000)\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(pid))\ndef f(x): return x"
    )
    assert own_worker.run(submit(source)).finished
    assert not is_alive(int((tmp_path / "pid").read_text()))


def test_ones_own_file_ends_within_its_limits_too(own_worker, submit):
    assert own_worker.run(submit("while True: pass", limits=replace(SMALL, wall_seconds=0.4))).word == "out of time"
    assert own_worker.run(submit("x = []\nwhile True: x.append(bytes(10**6))")).word == "out of memory"


def test_processor_time_ends_a_run_with_several_threads(worker, submit):
    source = (
        "import threading, re\n"
        "for _ in range(2): threading.Thread(target=re.match, args=('(a+)+$', 'a' * 99 + 'b')).start()\n"
        "while True: pass"
    )
    outcome = worker.run(submit(source, limits=replace(SMALL, cpu_seconds=1)))
    assert (outcome.word, outcome.sentence) == ("out of time", "It used 1 s of processor time.")


def test_without_forks_a_run_has_the_workers_process_and_the_next_a_new_one(submit):
    with Worker(SMALL, process=WorkerProcess(Protection.for_others(), forks=False)) as worker:
        pid = worker._process._process.pid
        first = worker.run(submit("import os, torch\ndef f(x): return torch.tensor(os.getpid())"))
        loop = worker.run(submit("while True: pass", limits=replace(SMALL, wall_seconds=0.4)))
    assert first.finished, first
    assert first.tensors["out"].item() == pid
    assert loop.word == "out of time"


@pytest.mark.parametrize(
    ("make", "entry", "message"),
    [
        (lambda p: None, None, "homework does not exist"),
        (lambda p: p.write_text(""), "a.py", "homework is a file, so it has no a.py"),
        (lambda p: p.mkdir(), None, "homework has 0 Python files; name the one to import"),
        (lambda p: p.mkdir(), "a.py", "homework has no file a.py"),
        (lambda p: (p.mkdir(), (p.parent / "key.py").write_text("")), "../key.py", "homework has no file ../key.py"),
    ],
)
def test_a_submission_without_a_file_to_import_says_what_is_wrong(tmp_path, make, entry, message):
    make(tmp_path / "homework")
    with pytest.raises(ValueError, match=message):
        find_entry(tmp_path / "homework", entry, links=False)


@pytest.mark.parametrize(
    ("result", "status", "cpu", "word"),
    [
        (STARTED + pack({}, {"failure": None, "values": None}), 0, 0.1, "finished"),
        (STARTED + pack({}, {"failure": None, "values": None}), signal.SIGSEGV, 0.1, "killed"),
        (STARTED, 0, 0.1, "ended early"),
        (STARTED, 7 << 8, 0.1, "ended early"),
        (STARTED, signal.SIGXCPU, 0.1, "out of time"),
        (STARTED, signal.SIGKILL, 10.0, "out of time"),
        (STARTED, signal.SIGKILL, 0.1, "killed"),
        (STARTED, 50, 0.1, "killed"),
        (STARTED + b"x", 0, 0.1, "malformed"),
        (STARTED + pack({}, None), 0, 0.1, "malformed"),
        (STARTED + pack({}, {"failure": 7, "values": None}), 0, 0.1, "malformed"),
        (b"OSError: no Landlock", 1 << 8, 0.1, "not run"),
        (b"", signal.SIGKILL, 0.1, "not run"),
    ],
)
def test_the_kernel_is_believed_before_the_process(result, status, cpu, word):
    received = Received(result=bytearray(result))
    outcome = judge(received, Ended(status, cpu), RunLimits(), 0.1, ProtectionReport())
    assert outcome.word == word
    assert outcome.sentence.endswith(".")


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")
def test_everything_ends_when_the_supervisor_is_killed(submit, tmp_path):
    file = tmp_path / "pids"
    job = submit(
        f"import os, time\nprint(os.getpid(), os.getppid(), file=open({str(file)!r}, 'w'), flush=True)\ntime.sleep(99)"
    )
    code = (
        "from regard.school.sandbox.worker import *\n"
        f"Worker(RunLimits(wall_seconds=99), Protection.for_own_file()).run(Job({str(job.submission)!r}, {DRIVER!r}))"
    )
    supervisor = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.monotonic() + 60
    while not (file.exists() and file.read_text().endswith("\n")) and time.monotonic() < deadline:
        time.sleep(0.02)
    pids = [int(pid) for pid in file.read_text().split()]
    assert all(map(is_alive, pids))
    supervisor.kill()
    supervisor.wait()
    while any(map(is_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(map(is_alive, pids))


def test_limits_of_a_job_go_before_those_of_the_worker(worker, submit):
    outcome = worker.run(submit("print('x' * 1000)", limits=RunLimits(output_bytes=100)))
    assert outcome.sentence == "It printed more than 100 bytes."


def test_a_hidden_package_cannot_be_imported_and_its_neighbours_can(submit):
    hidden = os.path.dirname(jaxtyping.__file__)
    with Worker(SMALL, Protection.for_others(hidden=[hidden])) as worker:
        outcome = worker.run(submit("import hypothesis, safetensors\nimport jaxtyping"))
    assert outcome.failure.type == "PermissionError"
    assert outcome.failure.lines == (FailedLine("homework.py", 2, "<module>"),)

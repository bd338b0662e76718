"""The worker's process: its messages, and the layers it finds."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from regard.school.sandbox.process import START
from regard.school.sandbox.protection import LAYERS
from regard.school.sandbox.runner import Messages


@pytest.fixture
def ends():
    first, second = socket.socketpair()
    with first, second:
        yield Messages(first), Messages(second)


def test_messages_arrive_one_by_one_with_their_descriptors(ends):
    first, second = ends
    reader, writer = os.pipe()
    first.send({"job": 7}, [reader])
    first.send({"kill": 7})
    message, descriptors = second.receive()
    assert message == {"job": 7}
    os.write(writer, b"through the other one")
    assert os.read(descriptors[0], 99) == b"through the other one"
    assert second.receive() == ({"kill": 7}, [])
    for descriptor in (reader, writer, *descriptors):
        os.close(descriptor)


def test_a_message_in_pieces_is_one_message(ends):
    first, second = ends
    first.connection.send(b'{"jo')
    first.connection.send(b'b": 11}\n{"kill": 11}\n')
    assert second.receive() == ({"job": 11}, [])
    assert second.waiting
    assert second.receive() == ({"kill": 11}, [])
    assert not second.waiting


def test_the_end_of_the_other_side_is_no_message(ends):
    first, second = ends
    first.connection.close()
    assert second.receive() == (None, [])


def run_in_worker(code: str) -> str:
    """What code prints in a process that is started as a worker is."""
    package = str(Path(sys.modules["regard.school.sandbox.runner"].__file__).parents[2])
    text = START.partition("from regard.school.sandbox.runner")[0] + "\n" + code
    command = [sys.executable, "-I", "-c", text, "0", package]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_a_warm_worker_has_one_thread_and_nothing_of_regard_but_the_sandbox():
    if not os.path.isdir("/proc/self/task"):
        pytest.skip("needs /proc")
    found = run_in_worker(
        "import os, regard.school.sandbox.runner as runner; runner._warm_up(); runner._warm_up_gradients()\n"
        "import regard.school.sandbox.child\n"
        "print(len(os.listdir('/proc/self/task')))\n"
        "print(sorted({'.'.join(name.split('.')[:3]) for name in sys.modules if name.split('.')[0] == 'regard'}))"
    )
    assert found == "1\n['regard', 'regard.school', 'regard.school.sandbox']"


def test_a_layer_that_fails_is_missing_with_the_reason():
    code = (
        "from regard.school.sandbox import protection, runner\n"
        "def fail(*arguments): raise OSError('Landlock is not in this kernel')\n"
        "protection.landlock.restrict_files = fail\n"
        "protection.set_limits = print\n"
        "print(runner.try_layers(protection.Protection.for_others(), []))"
    )
    tried = eval(run_in_worker(code).splitlines()[-1])
    assert list(tried) == list(LAYERS)
    assert tried["files"] == "Landlock is not in this kernel"
    assert tried["limits"] == "time and memory are not limited"

"""Ctrl-C at any moment. tests/test_terminal.py presses it in a terminal."""

import signal
import subprocess
import sys

import pytest

from regard.commands.terminal.interrupt import interruptible


@pytest.fixture(autouse=True)
def _handler():
    # A process in the background is started with SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_is_an_exception_and_is_remembered():
    with interruptible() as interruption:
        assert not interruption.arrived
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert interruption.arrived


def test_a_program_that_ignores_ctrl_c_goes_on_ignoring_it():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interruptible() as interruption:
            signal.raise_signal(signal.SIGINT)
        assert not interruption.arrived
    finally:
        signal.signal(signal.SIGINT, before)


def test_during_an_import_the_process_ends_at_once_with_all_that_was_written(tmp_path):
    (tmp_path / "slow.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n")
    code = (
        # A process in the background is started with SIGINT ignored.
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from regard.commands.terminal.interrupt import interruptible\n"
        "with interruptible():\n"
        "    print('before')\n"
        "    try: import slow\n"
        "    except BaseException: print('caught')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "before\n", "")

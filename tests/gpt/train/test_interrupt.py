"""Ctrl-C and SIGTERM while a loop runs."""

import os
import signal
import threading

import pytest

from regard.gpt.train.interrupt import stop_requested


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_a_request_and_handlers_are_restored(number):
    before = signal.getsignal(number)
    with stop_requested() as stopped:
        assert not stopped()
        os.kill(os.getpid(), number)
        assert stopped()
    assert signal.getsignal(number) is before


def test_the_second_signal_interrupts_at_once():
    before = signal.getsignal(signal.SIGINT)  # ignored, where the tests run in the background
    with stop_requested():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_in_another_thread_handlers_stay_as_they_are():
    handlers = []

    def enter():
        with stop_requested() as stopped:
            handlers.extend([signal.getsignal(signal.SIGINT), stopped()])

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert handlers == [before, False]

"""Fewer threads for a while, and items side by side: every number of threads and every mode is the same afterwards."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.overrides import TorchFunctionMode

from regard.support.torch_threads import limit_threads, run_side_by_side

pytestmark = pytest.mark.usefixtures("three_threads")


def in_another_thread(run):
    results = []
    thread = threading.Thread(target=lambda: results.append(run()))
    thread.start()
    thread.join()
    return results[0]


def state():
    """What torch keeps for each thread."""
    return torch.get_num_threads(), torch.is_grad_enabled(), torch.is_inference_mode_enabled()


def states_of_items(count, available=None):
    """The state that each of so many items runs with, by thread; every thread has an item before any has a second."""
    threads = min(available or torch.get_num_threads(), count)
    states, first = {}, threading.Barrier(threads)

    def work(_):
        if threading.get_ident() not in states:
            states[threading.get_ident()] = state()
            first.wait(timeout=60)

    run_side_by_side(work, range(count), available)
    return states


def test_the_number_of_threads_is_limited_inside_the_block():
    with limit_threads(1):
        assert torch.get_num_threads() == 1
        with limit_threads(2):
            assert torch.get_num_threads() == 2
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 3


def test_an_error_inside_restores_them_too():
    with pytest.raises(ZeroDivisionError, match="division"), limit_threads(1):
        1 / 0  # noqa: B018
    assert torch.get_num_threads() == 3
    assert in_another_thread(torch.get_num_threads) == 3


def test_threads_with_a_limit_at_the_same_time_all_get_theirs_back():
    def work():
        with limit_threads(1):
            inside = torch.get_num_threads()
        return inside, torch.get_num_threads()

    with limit_threads(1):  # a thread that starts now begins with one
        assert in_another_thread(work) == (1, 3)
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 3
    assert in_another_thread(torch.get_num_threads) == 3


def test_a_backend_that_cannot_change_them_is_left_alone(monkeypatch):
    monkeypatch.setattr(torch.backends.openmp, "is_available", lambda: False)
    with limit_threads(1):
        assert torch.get_num_threads() == 3
    here = threading.get_ident()
    threads = []
    run_side_by_side(lambda _: threads.append(threading.get_ident()), range(5))
    assert threads == [here] * 5


def test_every_item_runs_once_and_every_thread_takes_some():
    counts = torch.zeros(7, dtype=torch.int64)
    run_side_by_side(lambda i: counts[i].add_(1), range(7))
    assert counts.tolist() == [1] * 7
    assert len(states_of_items(7)) == 3


def test_no_items_are_no_work():
    run_side_by_side(lambda _: pytest.fail("there is nothing to do"), [])


def test_threads_without_an_item_split_the_operations_of_the_others():
    assert [threads for threads, *_ in states_of_items(2, available=5).values()] == [2, 2]
    assert [threads for threads, *_ in states_of_items(5).values()] == [1, 1, 1]


def test_a_limit_of_the_caller_does_not_count_where_the_number_is_given():
    with limit_threads(1):
        assert len(states_of_items(5)) == 1
        assert len(states_of_items(5, available=3)) == 3
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 3


def test_the_number_of_threads_is_the_same_afterwards():
    states_of_items(5)
    assert torch.get_num_threads() == 3
    assert in_another_thread(torch.get_num_threads) == 3


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("by_caller", [True, False])
def test_an_error_reaches_the_caller_and_ends_the_work(error, by_caller):
    here, done, failed = threading.get_ident(), [], threading.Event()

    def work(i):
        if (threading.get_ident() == here) is by_caller:
            failed.set()
            raise error("item of one thread")
        assert failed.wait(timeout=60)
        done.append(i)

    with pytest.raises(error, match="item of one thread"):
        run_side_by_side(work, range(1000))
    assert len(done) < 900
    assert torch.get_num_threads() == 3
    assert in_another_thread(torch.get_num_threads) == 3
    assert not [thread for thread in threading.enumerate() if "ThreadPool" in thread.name]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad, torch.inference_mode])
def test_all_items_run_in_the_gradient_mode_of_the_caller(mode):
    before = state()
    with mode():
        expected = (1, *state()[1:])
        assert list(states_of_items(5).values()) == [expected] * 3
        assert state() == (3, *expected[1:])
    assert state() == before


def test_modes_that_intercept_functions_stay_with_the_caller():
    here, seen = threading.get_ident(), []

    class Watching(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(threading.get_ident())
            return func(*args, **(kwargs or {}))

    first = threading.Barrier(3)

    def work(i):
        first.wait(timeout=60)
        torch.ones(2).add(i)

    with Watching():
        run_side_by_side(work, range(3))
    assert set(seen) == {here}


def test_a_single_item_has_all_threads_that_are_available():
    counts = []
    with limit_threads(1):
        run_side_by_side(lambda _: counts.append(torch.get_num_threads()), ["only"], 3)
        assert torch.get_num_threads() == 1
    assert counts == [3]


def test_where_no_thread_can_be_started_the_caller_does_all(monkeypatch):
    def refuse(self, *_):
        raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    monkeypatch.setattr(ThreadPoolExecutor, "submit", refuse)
    done = []
    run_side_by_side(done.append, range(7), 3)
    assert done == list(range(7))

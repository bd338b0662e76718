"""A value for the length of a block, in one thread or task."""

import asyncio
import contextvars
import threading

import pytest
import torch

from regard.support.scoped import Scoped


@pytest.fixture
def number():
    return Scoped[int]("number")


def test_the_innermost_block_wins_and_the_outer_value_returns(number):
    assert number.get() is None
    with number.set(3):
        with number.set(5):
            assert number.get() == 5
        assert number.get() == 3
    assert number.get() is None


def test_a_block_that_fails_ends_too(number):
    with pytest.raises(ZeroDivisionError, match="on purpose"), number.set(3):
        raise ZeroDivisionError("on purpose")
    assert (number.get(), number.open_blocks) == (None, 0)


def test_threads_do_not_see_each_others_values(number):
    seen, both = {}, threading.Barrier(2)

    def run(value):
        with number.set(value):
            both.wait()
            seen[value] = number.get()
            both.wait()

    threads = [threading.Thread(target=run, args=(value,)) for value in (3, 5)]
    with number.set(7):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert number.get() == 7
    assert seen == {3: 3, 5: 5}


def test_tasks_do_not_see_each_others_values(number):
    async def run(value):
        with number.set(value):
            await asyncio.sleep(0)
            return number.get()

    async def both():
        return await asyncio.gather(run(3), run(5))

    assert asyncio.run(both()) == [3, 5]


def test_a_block_that_ends_in_another_context_leaves_nothing_behind(number):
    def block():
        with number.set(3):
            yield

    def other_context():
        generator = block()
        next(generator)
        contextvars.copy_context().run(generator.close)

    contextvars.copy_context().run(other_context)
    assert (number.get(), number.open_blocks) == (None, 0)


def test_blocks_may_end_in_any_order(number):
    one, two = number.set(3), number.set(5)
    one.__enter__()
    two.__enter__()
    one.__exit__(None, None, None)
    assert number.get() == 5
    with number.set(7):
        two.__exit__(None, None, None)
        assert number.get() == 7
    assert number.get() is None


def test_a_thread_that_runs_in_a_copy_of_the_context_has_no_value(number):
    seen = []
    with number.set(3):
        context = contextvars.copy_context()
        thread = threading.Thread(target=context.run, args=(lambda: seen.append(number.get()),))
        thread.start()
        thread.join()
    assert seen == [None]


@pytest.mark.compiled
def test_a_compiled_graph_sees_no_value(number):
    run = torch.compile(lambda x: x + 1 if number.get() is None else x, backend="eager", fullgraph=True)
    x = torch.ones(2)
    assert torch.equal(run(x), x + 1)
    with number.set(3):
        assert torch.equal(run(x), x + 1)

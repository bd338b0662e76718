"""Turns: so many at a time, so many waiting, and not for ever."""

import asyncio
import threading

import pytest

pytest.importorskip("starlette")

from regard.show.server.limits import Limits
from regard.show.server.turns import Busy, Turns, in_thread


def computing():
    """Is a thread of in_thread at work, also one that nobody waits for any more?"""
    return any(thread.name == "regard-serve" for thread in threading.enumerate())


def test_no_more_than_allowed_run_at_a_time_and_all_get_their_turn():
    async def all_of_them():
        turns = Turns(Limits(running=2, waiting=11))
        most = done = 0

        async def one():
            nonlocal most, done
            async with turns.turn():
                most = max(most, turns.running)
                await asyncio.sleep(0)
                done += 1

        await asyncio.gather(*(one() for _ in range(13)))
        return most, done, turns.running, turns.waiting

    assert asyncio.run(all_of_them()) == (2, 13, 0, 0)


def test_who_comes_when_too_many_wait_is_turned_away():
    async def crowd():
        turns = Turns(Limits(running=1, waiting=3))
        leave = asyncio.Event()

        async def one():
            async with turns.turn():
                await leave.wait()
                return "ran"

        tasks = [asyncio.create_task(one()) for _ in range(7)]
        await asyncio.sleep(0.01)
        leave.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    results = asyncio.run(crowd())
    assert results[:4] == ["ran"] * 4
    assert all(isinstance(one, Busy) for one in results[4:])


def test_who_waits_too_long_is_turned_away_and_the_next_gets_the_turn():
    async def late():
        turns = Turns(Limits(wait_seconds=0.01))
        async with turns.turn():
            with pytest.raises(Busy):
                async with turns.turn():
                    pass
        async with turns.turn():
            return turns.running, turns.waiting

    assert asyncio.run(late()) == (1, 0)


def test_an_error_inside_gives_the_turn_back():
    async def failing():
        turns = Turns(Limits())
        with pytest.raises(ValueError, match="inside"):
            async with turns.turn():
                raise ValueError("inside")
        async with turns.turn():
            return turns.running

    assert asyncio.run(failing()) == 1


def test_a_function_runs_in_a_thread_that_nobody_waits_for():
    def work():
        return threading.current_thread().daemon, threading.current_thread() is threading.main_thread()

    assert asyncio.run(in_thread(work)) == (True, False)


def test_an_error_in_the_thread_is_raised_here():
    def work():
        raise KeyError("there")

    with pytest.raises(KeyError, match="there"):
        asyncio.run(in_thread(work))


def test_a_result_that_comes_after_the_loop_has_ended_is_dropped():
    begun, go = threading.Event(), threading.Event()

    def work():
        begun.set()
        go.wait()

    async def leave_early():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(in_thread(work), 0.01)

    asyncio.run(leave_early())
    assert begun.is_set()
    assert computing()
    go.set()
    for thread in threading.enumerate():
        if thread.name == "regard-serve":
            thread.join()  # an error in it would fail this test, as every warning does
    assert not computing()

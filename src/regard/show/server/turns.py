"""Turns: how many runs of a model go on at a time, and how many more may wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from regard.show.server.limits import Limits

Result = TypeVar("Result")
_THREAD = "regard-serve"


class Busy(Exception):
    """Too many are waiting, or the wait was too long."""


class Turns:
    """A bounded number of turns at a time; others wait, in order, up to a bounded number and time."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.running = 0
        self.waiting = 0
        self._free = asyncio.Semaphore(limits.running)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn and take it, or raise Busy."""
        if self.running + self.waiting >= self.limits.running + self.limits.waiting:
            raise Busy
        self.waiting += 1
        try:
            await asyncio.wait_for(self._free.acquire(), self.limits.wait_seconds)
        except asyncio.TimeoutError:
            raise Busy from None
        finally:
            self.waiting -= 1
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1
            self._free.release()


async def in_thread(work: Callable[[], Result]) -> Result:
    """The result of a function that runs in a thread of its own.

    The thread is a daemon: the server ends with Ctrl-C, and does not wait for a long run whose result nobody reads.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Result] = loop.create_future()

    def deliver(act: Callable[[Any], None], value: Any) -> None:
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(lambda: None if future.done() else act(value))

    def run() -> None:
        try:
            result = work()
        except Exception as error:
            deliver(future.set_exception, error)
        else:
            deliver(future.set_result, result)

    threading.Thread(target=run, daemon=True, name=_THREAD).start()
    return await future

"""Limits of the server: how much it reads, keeps and runs, and how long it waits for anybody."""

import asyncio
import json
import math
import re
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

Result = TypeVar("Result")
FIELDS = {"text", "model", "cut"}  # of a request to see


@dataclass(frozen=True)
class Limits:
    """Every bound of the server."""

    characters: int = 20_000  # of a text
    body_bytes: int = 256 * 1024  # of a request; a character can take 12 bytes in JSON
    body_seconds: float = 10  # to receive a request's body
    head_seconds: float = 10  # to receive a request's first line and headers
    write_seconds: float = 30  # without progress, for a client that does not read its answer
    running: int = 1  # model runs at a time
    waiting: int = 64  # requests that wait for a model
    wait_seconds: float = 120  # for a turn
    kept_bytes: int = 256 * 2**20  # of reports
    connections: int = 512


class TooLarge(ValueError):
    """A text that is within the limit of characters and still too long for a model."""


async def read_question(request: Request, limits: Limits) -> dict[str, Any]:
    """The JSON object of a request, refused before it is read where it is too large or no JSON."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":  # a form on another site can send anything else without asking
        raise HTTPException(415, "send JSON, with Content-Type: application/json")
    try:
        content = json.loads(await _read_body(request, limits))
    except (ValueError, RecursionError):
        raise HTTPException(400, 'the body is not JSON; send {"text": "The cat sat"}') from None
    if not isinstance(content, dict):
        raise HTTPException(400, 'the body must be a JSON object; send {"text": "The cat sat"}')
    unknown = sorted(set(content) - FIELDS)
    if unknown:
        raise HTTPException(400, f"unknown field {unknown[0][:80]!r}; known are text, model and cut")
    return content


async def _read_body(request: Request, limits: Limits) -> bytes:
    too_large = HTTPException(413, f"the request has more than {limits.body_bytes:,} bytes; shorten the text")
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > limits.body_bytes:
        raise too_large

    async def receive() -> bytes:
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > limits.body_bytes:
                raise too_large
        return bytes(body)

    try:
        return await asyncio.wait_for(receive(), limits.body_seconds)
    except asyncio.TimeoutError:
        raise HTTPException(408, f"the body did not arrive within {limits.body_seconds:g} seconds") from None
    except ClientDisconnect:
        raise HTTPException(400, "the connection was closed before the body arrived") from None


def check_text(text: object, limits: Limits) -> str:
    """The text of a request, if it is one."""
    if not isinstance(text, str):
        raise HTTPException(400, f"text must be a string, not {type(text).__name__}")
    if len(text) > limits.characters:
        most = f"at most {limits.characters:,} are read. Shorten it."
        raise HTTPException(413, f"the text has {len(text):,} characters; {most}")
    if not text.strip():
        raise HTTPException(400, "the text is empty; type at least a word")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise HTTPException(400, f"the text holds half of a character at position {error.start}; remove it") from None
    return text


def check_cut(cut: object) -> tuple[int, int] | None:
    """The head to cut, (layer, head); None where none is named."""
    if cut is None:
        return None
    if not isinstance(cut, str) or re.fullmatch(r"[0-9]{1,4}\.[0-9]{1,4}", cut) is None:
        raise HTTPException(400, 'cut must be a head, such as "4.3", head 3 of layer 4')
    layer, head = cut.split(".")
    return int(layer), int(head)


class Busy(Exception):
    """Too many are waiting, or the wait was too long; ahead: how many run or wait, seconds: when to come again."""

    def __init__(self, ahead: int, seconds: int) -> None:
        super().__init__(ahead, seconds)
        self.ahead, self.seconds = ahead, seconds


class Turns:
    """A bounded number of turns at a time; others wait, in order, up to a bounded number and time."""

    def __init__(self, limits: Limits) -> None:
        self.limits, self.running, self.waiting = limits, 0, 0
        self._free = asyncio.Semaphore(limits.running)
        self._seconds = 1.0  # of a turn: a running mean

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn and take it, or raise Busy."""
        if self.running + self.waiting >= self.limits.running + self.limits.waiting:
            raise self._busy()
        self.waiting += 1
        try:
            await asyncio.wait_for(self._free.acquire(), self.limits.wait_seconds)
        except asyncio.TimeoutError:
            raise self._busy() from None
        finally:
            self.waiting -= 1
        self.running += 1
        began = time.monotonic()
        try:
            yield
        finally:
            self._seconds += (time.monotonic() - began - self._seconds) / 4
            self.running -= 1
            self._free.release()

    def _busy(self) -> Busy:
        """Busy until those who wait now have had their turn."""
        ahead = self.running + self.waiting
        return Busy(ahead, max(1, math.ceil(self._seconds * ahead / self.limits.running)))


class SharedRuns(Generic[Result]):
    """Runs by the id of their result: who asks for one that waits or runs already shares it.

    keep: called with the id and the result of each run, before anybody gets it.
    """

    def __init__(self, turns: Turns, keep: Callable[[str, Result], None]) -> None:
        self.turns, self.keep = turns, keep
        self._runs: dict[str, tuple[asyncio.Task[Result], list[Request]]] = {}

    async def result(self, id: str, request: Request, work: Callable[[], Result]) -> Result:
        """The result of the work, done once for all who ask meanwhile, in a turn of its own; or Busy."""
        if id not in self._runs:
            self._runs[id] = asyncio.create_task(self._run(id, work)), []
            self._runs[id][0].add_done_callback(lambda done: done.cancelled() or done.exception())  # all may have left
        task, requests = self._runs[id]
        requests.append(request)
        return await asyncio.shield(task)  # who leaves does not end it for the others

    async def _run(self, id: str, work: Callable[[], Result]) -> Result:
        try:
            async with self.turns.turn():
                for request in self._runs[id][1]:
                    if not await request.is_disconnected():
                        result = await in_thread(work)
                        self.keep(id, result)
                        return result
                raise HTTPException(400, "the connection was closed before the model ran")
        finally:
            del self._runs[id]


async def in_thread(work: Callable[[], Result]) -> Result:
    """The result of a function that runs in a thread of its own.

    The thread is a daemon: the server ends with Ctrl-C, and does not wait for a long run whose result nobody reads.
    """
    future: Future[Result] = Future()
    future.set_running_or_notify_cancel()  # who stops waiting does not cancel it

    def run() -> None:
        try:
            future.set_result(work())
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True, name="regard-serve").start()
    return await asyncio.wrap_future(future)

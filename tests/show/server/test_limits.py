"""What the server reads of a request, and refuses before it reads it."""

import asyncio
import threading

import pytest

pytest.importorskip("starlette")

from starlette.exceptions import HTTPException
from starlette.requests import Request

from regard.show.server.limits import Busy, Limits, Turns, check_cut, check_text, in_thread, read_question

SMALL = Limits(body_bytes=53, body_seconds=0.05, characters=11)


def asked(parts, content_type="application/json", length=None, stalls=False):
    """What read_question makes of a body that arrives in parts; it stalls after the last one if asked to."""
    messages = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    if not stalls:
        messages.append({"type": "http.request", "body": b"", "more_body": False})

    async def receive():
        if not messages:
            await asyncio.sleep(60)
        return messages.pop(0)

    headers = [(b"content-type", content_type.encode())]
    headers += [] if length is None else [(b"content-length", str(length).encode())]
    scope = {"type": "http", "method": "POST", "path": "/api/see", "headers": headers}
    return asyncio.run(read_question(Request(scope, receive), SMALL)), messages


def test_a_question_may_arrive_in_parts():
    assert asked([b'{"text": "The', b' cat"}'])[0] == {"text": "The cat"}
    assert asked([b'{"text": "a"}'], "application/json; charset=utf-8")[0] == {"text": "a"}


@pytest.mark.parametrize(
    ("parts", "options", "status", "message"),
    [
        ([b"{}"], {"content_type": "text/plain"}, 415, "send JSON, with Content-Type: application/json"),
        ([b"{}"], {"length": 54}, 413, "the request has more than 53 bytes; shorten the text"),
        ([b"x" * 27] * 2, {}, 413, "the request has more than 53 bytes; shorten the text"),
        ([b'{"text"'], {"stalls": True}, 408, r"the body did not arrive within 0\.05 seconds"),
        ([b""], {}, 400, "the body is not JSON"),
        ([b"\xff\xfe"], {}, 400, "the body is not JSON"),
        ([b"[1, 2]"], {}, 400, "the body must be a JSON object"),
        ([b'{"txt": "a"}'], {}, 400, "unknown field 'txt'; known are text, model and cut"),
    ],
)
def test_other_bodies_are_refused(parts, options, status, message):
    with pytest.raises(HTTPException, match=message) as refused:
        asked(parts, **options)
    assert refused.value.status_code == status


def test_json_that_is_nested_too_deeply_is_refused():
    deep = Limits()

    async def receive():
        return {"type": "http.request", "body": b"[" * 200_000, "more_body": False}

    scope = {"type": "http", "method": "POST", "headers": [(b"content-type", b"application/json")]}
    with pytest.raises(HTTPException, match="the body is not JSON"):
        asyncio.run(read_question(Request(scope, receive), deep))


@pytest.mark.parametrize(
    ("text", "status", "message"),
    [
        (None, 400, "text must be a string, not NoneType"),
        (["a"], 400, "text must be a string, not list"),
        ("a" * 12, 413, r"the text has 12 characters; at most 11 are read\. Shorten it\."),
        (" \n", 400, "the text is empty; type at least a word"),
        ("a\ud800b", 400, "the text holds half of a character at position 1; remove it"),
    ],
)
def test_what_is_no_text_is_refused(text, status, message):
    with pytest.raises(HTTPException, match=message) as refused:
        check_text(text, SMALL)
    assert refused.value.status_code == status


def test_a_text_of_the_longest_length_is_read_as_it_is():
    assert check_text(" ünï\x00\n猫 ab", SMALL) == " ünï\x00\n猫 ab"


@pytest.mark.parametrize("cut", ["4", "4.3.1", "4.x", "", 4.3, [4, 3], "12345.0", "\u0664.3"])
def test_a_cut_that_is_no_head_is_refused(cut):
    with pytest.raises(HTTPException, match=r"cut must be a head, such as \"4\.3\""):
        check_cut(cut)


def test_a_head_to_cut_is_layer_and_head():
    assert (check_cut("4.13"), check_cut(None)) == ((4, 13), None)


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

"""What the server reads of a request, and refuses before it reads it."""

import asyncio

import pytest

pytest.importorskip("starlette")

from starlette.exceptions import HTTPException
from starlette.requests import Request

from regard.show.server.limits import Limits, check_cut, check_text, read_question

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

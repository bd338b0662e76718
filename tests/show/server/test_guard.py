"""Which requests the server answers at all."""

import asyncio

import pytest

pytest.importorskip("starlette")

from starlette.responses import PlainTextResponse

from regard.show.server.guard import Guard, is_loopback, known_hosts


def answer(headers, path="/", host="127.0.0.1"):
    """The status and the headers of the answer to a request with these headers."""
    sent = []

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": path, "headers": headers}
    asyncio.run(Guard(PlainTextResponse("hello"), known_hosts(host))(scope, None, send))
    return sent[0]["status"], dict(sent[0]["headers"])


@pytest.mark.parametrize("name", ["localhost", "LOCALHOST:8765", "127.0.0.1:80", "[::1]:8765", "localhost."])
def test_a_loopback_server_answers_to_names_of_loopback(name):
    assert answer([(b"host", name.encode())])[0] == 200


@pytest.mark.parametrize(
    "names",
    [
        ["evil.example"],
        ["evil.example:8765"],
        ["localhost.evil.example"],
        ["evil@localhost"],
        ["localhost:8765/x"],
        ["10.0.0.7"],
        ["[::1"],
        [""],
        [],
        ["localhost", "localhost"],
    ],
)
def test_other_names_are_refused(names):
    assert answer([(b"host", name.encode()) for name in names])[0] == 421


def test_a_server_for_others_answers_to_addresses_and_its_own_name():
    assert answer([(b"host", b"192.168.7.5:8765")], host="0.0.0.0")[0] == 200
    assert answer([(b"host", b"lab.example")], host="lab.example")[0] == 200
    assert answer([(b"host", b"evil.example")], host="0.0.0.0")[0] == 421


@pytest.mark.parametrize(
    ("site", "path", "status"),
    [
        ("cross-site", "/api/see", 403),
        ("same-site", "/api/block/a/b", 403),
        ("same-origin", "/api/see", 200),
        ("none", "/api/see", 200),
        ("cross-site", "/", 200),
    ],
)
def test_other_sites_may_link_to_the_page_and_not_use_it(site, path, status):
    assert answer([(b"host", b"localhost"), (b"sec-fetch-site", site.encode())], path)[0] == status


@pytest.mark.parametrize(
    ("origin", "path", "status"),
    [
        ("http://localhost:8765", "/api/see", 200),
        ("HTTP://LOCALHOST:8765", "/api/see", 200),
        ("http://evil.example", "/api/see", 403),
        ("http://localhost:9999", "/api/see", 403),
        ("http://localhost", "/api/block/a/b", 403),
        ("null", "/api/see", 403),
        ("", "/api/see", 403),
        ("http://evil.example", "/", 200),
    ],
)
def test_a_foreign_origin_is_refused_also_where_a_browser_says_nothing_of_the_site(origin, path, status):
    assert answer([(b"host", b"localhost:8765"), (b"origin", origin.encode())], path)[0] == status


@pytest.mark.parametrize("host", [b"localhost", b"evil.example"])
def test_every_answer_says_that_nobody_may_frame_or_read_it(host):
    headers = answer([(b"host", host)])[1]
    assert b"frame-ancestors 'none'" in headers[b"content-security-policy"]
    assert headers[b"x-content-type-options"] == b"nosniff"
    assert headers[b"cross-origin-resource-policy"] == b"same-origin"
    assert not any(name.startswith(b"access-control") for name in headers)


def test_loopback_is_known_in_all_its_forms():
    assert [is_loopback(host) for host in ("127.0.0.1", "127.0.0.7", "::1", "localhost")] == [True] * 4
    assert [is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.7", "example.org")] == [False] * 4

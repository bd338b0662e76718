"""A real server under load, with clients that are slow, that vanish and that send nonsense."""

import json
import socket
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from reports import Counting
from running import connect, read_all, request, running, status

from regard.show.server.limits import Limits
from regard.show.server.listen import address, open_socket


def ask(port, text="a"):
    with connect(port) as connection:
        connection.sendall(request(json.dumps({"text": text}).encode()))
        return read_all(connection)


def all_at_once(calls):
    """The results of calls that begin together."""
    with ThreadPoolExecutor(len(calls)) as pool:
        barrier = threading.Barrier(len(calls))

        def begin(call):
            barrier.wait()
            return call()

        return list(pool.map(begin, calls))


def test_200_at_once_get_an_answer_and_the_model_runs_one_text_at_a_time(monkeypatch):
    see = Counting(seconds=0.002)
    with running(see, Limits(waiting=199), monkeypatch=monkeypatch) as (app, port):
        answers = all_at_once([lambda n=n: ask(port, f"text {n % 53}") for n in range(200)])
    assert Counter(map(status, answers)) == {200: 200}
    assert see.most_at_once == 1
    assert len(see.runs) == 53  # each text once, however many ask for it
    assert (app.state.turns.running, app.state.turns.waiting) == (0, 0)


def test_a_crowd_that_is_too_large_is_told_to_come_again(monkeypatch):
    see = Counting(seconds=0.3)
    with running(see, Limits(waiting=7), monkeypatch=monkeypatch) as (_, port):
        answers = all_at_once([lambda n=n: ask(port, f"text {n}") for n in range(23)])
        assert Counter(map(status, answers)) == {200: 8, 503: 15}
        busy = next(answer for answer in answers if status(answer) == 503)
        assert b"retry-after: 8" in busy.lower()
        assert b"the model has 8 other texts to read first; try again in 8 s" in busy
        assert status(ask(port, "later")) == 200


def test_200_at_once_with_ten_texts_share_ten_runs(monkeypatch):
    see = Counting(seconds=0.05)
    with running(see, monkeypatch=monkeypatch) as (app, port):
        answers = all_at_once([lambda n=n: ask(port, f"text {n % 10}") for n in range(200)])
    assert Counter(map(status, answers)) == {200: 200}
    assert sorted(see.runs) == [("tiny", f"text {n}") for n in range(10)]
    assert (app.state.turns.running, app.state.turns.waiting) == (0, 0)


def test_who_shares_a_run_gets_it_when_the_first_who_asked_has_left(monkeypatch):
    see = Counting(seconds=0.3)
    with running(see, monkeypatch=monkeypatch) as (app, port):
        first = threading.Thread(target=ask, args=(port, "first"))
        first.start()
        while not see.runs:
            threading.Event().wait(0.01)
        with connect(port) as vanishing:
            vanishing.sendall(request(json.dumps({"text": "shared"}).encode()))
            while not app.state.turns.waiting:
                threading.Event().wait(0.01)
            second = threading.Thread(target=lambda: answers.append(ask(port, "shared")))
            answers = []
            second.start()
            threading.Event().wait(0.1)
        second.join()
        first.join()
    assert [status(answer) for answer in answers] == [200]
    assert see.runs == [("tiny", "first"), ("tiny", "shared")]


def test_a_refusal_is_shared_too(monkeypatch):
    see = Counting(seconds=0.1)
    with running(see, monkeypatch=monkeypatch) as (_, port):
        answers = all_at_once([lambda: ask(port, "refuse") for _ in range(7)])
    assert Counter(map(status, answers)) == {400: 7}
    assert see.runs == [("tiny", "refuse")]


def test_memory_is_bounded_however_many_texts_come(monkeypatch):
    see = Counting(size=10_000)
    with running(see, Limits(kept_bytes=95_000, waiting=99), monkeypatch=monkeypatch) as (app, port):
        all_at_once([lambda n=n: ask(port, f"text {n}") for n in range(50)])
        assert app.state.kept.size <= 95_000
        assert len(app.state.kept) == 9


def test_headers_that_never_end_close_the_connection_and_harm_nobody(monkeypatch):
    with running(Counting(), Limits(head_seconds=0.5, connections=99), monkeypatch=monkeypatch) as (_, port):
        slow = [connect(port) for _ in range(47)]
        for connection in slow:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: local")
        silent = connect(port)
        assert status(ask(port)) == 200
        assert [read_all(connection) for connection in [*slow, silent]] == [b""] * 48
        for connection in [*slow, silent]:
            connection.close()


def test_a_body_that_stalls_is_refused(monkeypatch):
    with running(Counting(), Limits(body_seconds=0.2), monkeypatch=monkeypatch) as (_, port), connect(port) as slow:
        slow.sendall(request(b"x" * 100)[:-50])
        assert status(read_all(slow)) == 408


def test_a_client_that_goes_on_sending_after_its_refusal_is_cut_off(monkeypatch):
    limits = Limits(head_seconds=0.3)
    with running(Counting(), limits, monkeypatch=monkeypatch) as (_, port), connect(port) as endless:
        head = request(b"", **{"Transfer-Encoding": "chunked"}).replace(b"Content-Length: 0\r\n", b"")
        endless.sendall(head.replace(b"Connection: close\r\n", b""))

        def go_on():
            end = time.monotonic() + 20
            while time.monotonic() < end:
                endless.sendall(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")

        with pytest.raises((ConnectionResetError, BrokenPipeError), match=r"reset|pipe"):
            go_on()


def test_a_client_that_does_not_read_is_cut_off(monkeypatch):
    see = Counting(size=40_000_000)
    with running(see, Limits(write_seconds=0.3), monkeypatch=monkeypatch) as (_, port):
        id = json.loads(ask(port).partition(b"\r\n\r\n")[2])["id"]
        with socket.socket() as lazy:
            lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            lazy.connect(("127.0.0.1", port))
            lazy.sendall(request(b"", "GET", f"/api/block/{id}/weights.0.0.0"))
            threading.Event().wait(0.8)
            assert len(read_all(lazy)) < 40_000_000
        assert status(ask(port, "another")) == 200


def test_who_has_left_while_waiting_gets_no_run(monkeypatch):
    see = Counting(seconds=0.4)
    with running(see, monkeypatch=monkeypatch) as (app, port):
        first = threading.Thread(target=ask, args=(port, "first"))
        first.start()
        while not see.runs:
            threading.Event().wait(0.01)
        for n in range(5):
            with connect(port) as vanishing:
                vanishing.sendall(request(json.dumps({"text": f"vanished {n}"}).encode()))
                while app.state.turns.waiting <= n:
                    threading.Event().wait(0.01)
        assert status(ask(port, "last")) == 200
        first.join()
    assert see.runs == [("tiny", "first"), ("tiny", "last")]


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # a browser that expects https
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /api/see HTTP/1.1\r\nHost: localhost\r\nContent-Length: -7\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        b"nonsense\r\n\r\n",
    ],
    ids=["tls", "no host", "long path", "negative length", "two hosts", "nonsense"],
)
def test_nonsense_is_answered_with_400_or_421(sent, monkeypatch):
    with running(Counting(), Limits(head_seconds=0.5), monkeypatch=monkeypatch) as (_, port):
        with connect(port) as connection:
            connection.sendall(sent)
            answer = read_all(connection)
        assert status(answer) in (400, 421)
        assert b"Traceback" not in answer
        assert status(ask(port)) == 200


def test_the_server_does_not_say_what_it_is_made_of(monkeypatch):
    with running(Counting(), monkeypatch=monkeypatch) as (_, port):
        assert b"uvicorn" not in ask(port)


def test_a_port_in_use_names_another():
    with open_socket("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(ValueError, match=rf"--port {port} is in use; try --port {port + 1}, or --port 0"):
            open_socket("127.0.0.1", port)


@pytest.mark.parametrize("host", ["203.0.113.7", "no.such.host.invalid", "::zz"])
def test_a_host_that_is_not_ours_is_refused(host):
    with pytest.raises(ValueError, match=rf"^cannot listen on --host {host} --port 0: [^(]+; try --host 127\.0\.0\.1"):
        open_socket(host, 0)


def test_the_address_is_one_that_a_browser_can_open():
    with open_socket("0.0.0.0", 0) as everywhere:
        assert address(everywhere) == f"http://127.0.0.1:{everywhere.getsockname()[1]}/"

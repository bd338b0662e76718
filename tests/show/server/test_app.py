"""What the server answers, without a network."""

import json
import logging

import pytest

pytest.importorskip("starlette")

from reports import Counting
from starlette.testclient import TestClient

from regard.show.page.payload import PageData
from regard.show.server.app import KeptReport, KeptReports, create_app
from regard.show.server.limits import Limits


@pytest.fixture
def see():
    return Counting()


@pytest.fixture
def client(see):
    app = create_app(see, ["tiny", "other"], "The cat", limits=Limits(characters=101, kept_bytes=150))
    with TestClient(app, base_url="http://localhost", raise_server_exceptions=False) as client:
        yield client


def test_the_page_begins_with_its_settings_and_may_fetch_from_its_server_only(client):
    answer = client.get("/")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert '{"models":["tiny","other"],"text":"The cat","longest":101}' in answer.text
    assert "default-src 'none'" in answer.text
    assert "connect-src 'self'" in answer.text


def test_a_text_gives_a_document_and_its_blocks(client, see):
    answer = client.post("/api/see", json={"text": "猫", "model": "other"})
    assert answer.json()["document"] == {"reports": [{"title": "猫"}]}
    block = client.get(f"/api/block/{answer.json()['id']}/weights.0.0.0")
    assert (block.content, block.headers["content-type"]) == (b"w" * 7, "application/gzip")
    assert see.runs == [("other", "猫")]


def test_the_same_text_again_runs_no_model(client, see):
    first, second = (client.post("/api/see", json={"text": "a"}).json() for _ in range(2))
    assert first == second
    assert see.runs == [("tiny", "a")]


def test_old_reports_are_dropped_and_made_again_when_they_are_asked_for(client, see):
    ids = [client.post("/api/see", json={"text": f"{n:099}"}).json()["id"] for n in range(3)]
    status = [client.get(f"/api/block/{id}/weights.0.0.0").status_code for id in ids]
    assert status == [404, 404, 200]
    assert client.get(f"/api/block/{ids[0]}/weights.0.0.0").json() == {
        "error": "this report is no longer kept; send its text again"
    }
    assert client.post("/api/see", json={"text": f"{0:099}"}).json()["id"] == ids[0]
    assert len(see.runs) == 4


@pytest.mark.parametrize(
    ("content", "status", "message"),
    [
        ({"text": "a" * 102}, 413, "the text has 102 characters; at most 101 are read. Shorten it."),
        ({"text": ""}, 400, "the text is empty; type at least a word"),
        ({}, 400, "text must be a string, not NoneType"),
        ({"text": "a", "model": "../../etc"}, 400, "there is no such model here; choose tiny or other"),
        ({"text": "a", "model": ["tiny"]}, 400, "there is no such model here; choose tiny or other"),
        ({"text": "a", "layer": 3}, 400, "unknown field 'layer'; known are text, model and cut"),
        ({"text": "refuse"}, 400, "this text cannot be read; try another"),
    ],
)
def test_a_mistake_is_one_line(client, content, status, message):
    answer = client.post("/api/see", json=content)
    assert (answer.status_code, answer.json()) == (status, {"error": message})


@pytest.mark.parametrize("body", [b"", b"{", b"null", b"\xff", b'{"text": NaN}', b"[" * 100_000, b"<xml/>"])
def test_a_malformed_body_is_refused_and_runs_nothing(client, see, body):
    answer = client.post("/api/see", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert see.runs == []


def test_an_oversized_body_is_refused(client):
    body = json.dumps({"text": "a" * 300_000}).encode()
    answer = client.post("/api/see", content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, "262,144 bytes" in answer.json()["error"]) == (413, True)


@pytest.mark.parametrize(
    "path",
    [
        "/../../etc/passwd",
        "/..%2f..%2fetc%2fpasswd",
        "/api/block/../../app.py",
        "/api/block/x/..%2F..%2Fapp.py",
        "/api/block/x/%00",
        "/api/block/%2e%2e/%2e%2e",
        "/page.css",
    ],
)
def test_there_are_no_files_to_reach(client, path):
    answer = client.get(path)
    assert answer.status_code == 404
    assert list(answer.json()) == ["error"]


@pytest.mark.parametrize(("method", "path"), [("GET", "/api/see"), ("PUT", "/"), ("DELETE", "/api/block/a/b")])
def test_other_methods_are_refused(client, method, path):
    assert client.request(method, path).status_code == 405


def test_another_host_gets_nothing(client, see):
    answer = client.post("/api/see", json={"text": "a"}, headers={"Host": "evil.example"})
    assert answer.status_code == 421
    assert see.runs == []


def test_a_failure_is_told_in_the_terminal_and_not_to_the_client(client, caplog):
    with caplog.at_level(logging.ERROR):
        answer = client.post("/api/see", json={"text": "fail"})
    assert answer.status_code == 500
    assert answer.json() == {"error": "the server failed on this request; its terminal says why"}
    assert "secret path" in caplog.text


def test_a_head_is_cut_where_the_server_cuts_heads(see):
    app = create_app(see, ["tiny"], "The cat", cuts=True)
    with TestClient(app, base_url="http://localhost") as client:
        assert '"cuts":true' in client.get("/").text
        ids = [
            client.post("/api/see", json={"text": "a", "cut": cut}).json()["id"] for cut in (None, "4.3", "4.3", "0.2")
        ]
    assert see.runs == [("tiny", "a"), ("tiny", "a", (4, 3)), ("tiny", "a", (0, 2))]
    assert [ids.index(one) for one in ids] == [0, 1, 1, 3]


def test_a_server_that_cuts_nothing_says_so(client, see):
    answer = client.post("/api/see", json={"text": "a", "cut": "4.3"})
    assert (answer.status_code, answer.json()) == (400, {"error": "this server cuts no heads; leave cut out"})
    assert see.runs == []


def kept_report(size):
    return KeptReport(b"{}", {"weights.0.0.0": b"w" * (size - 2)})


def test_a_page_is_kept_as_json_with_its_blocks():
    kept = KeptReport.of(PageData({"title": "猫"}, {"strongest.0": b"12345"}))
    assert kept.document == '{"title":"猫"}'.encode()
    assert kept.size == len(kept.document) + 5


def test_the_least_recently_used_is_removed_first():
    kept = KeptReports(most=30)
    for name in "abc":
        kept.add(name, kept_report(10))
    assert kept.get("a") is not None
    kept.add("d", kept_report(10))
    assert [name for name in "abcd" if kept.get(name) is not None] == ["a", "c", "d"]
    assert (len(kept), kept.size) == (3, 30)


def test_the_newest_is_kept_even_if_it_is_larger_than_all_may_be():
    kept = KeptReports(most=30)
    kept.add("a", kept_report(10))
    kept.add("b", kept_report(50))
    assert (kept.get("a"), len(kept), kept.size) == (None, 1, 50)


def test_the_same_report_again_counts_once():
    kept = KeptReports(most=30)
    kept.add("a", kept_report(10))
    kept.add("a", kept_report(12))
    assert (len(kept), kept.size) == (1, 12)


def test_memory_is_bounded_however_many_are_added():
    kept = KeptReports(most=1000)
    for number in range(500):
        kept.add(str(number), kept_report(2 + number % 97))
        assert kept.size <= 1000
    assert kept.size == sum(kept.get(str(number)).size for number in range(500) if kept.get(str(number)))


@pytest.mark.parametrize(("one", "other"), [(("a", "bc"), ("ab", "c")), (("tiny", "x"), ("tiny", "y"))])
def test_an_id_is_of_model_and_text_and_cannot_be_computed_elsewhere(one, other):
    kept = KeptReports(most=30)
    assert kept.id(*one) == kept.id(*one) != kept.id(*other)
    assert KeptReports(most=30).id(*one) != kept.id(*one)


def test_a_model_that_a_page_can_run_is_a_download_written_once(see):
    written = []
    app = create_app(see, ["tiny", "other"], "The cat", live={"tiny": lambda: written.append(1) or "<p>live</p>"})
    with TestClient(app, base_url="http://localhost") as client:
        assert '"live":["tiny"]' in client.get("/").text
        for _ in range(2):
            answer = client.get("/live.html?model=tiny")
            assert (answer.status_code, answer.text) == (200, "<p>live</p>")
        assert answer.headers["content-disposition"] == 'attachment; filename="live.html"'
        refused = client.get("/live.html?model=other")
        assert (refused.status_code, refused.json()) == (404, {"error": "there is no page of this model to download"})
    assert written == [1]

"""`regard serve` as a person starts it, uses it and ends it."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from regard import cli
from regard.commands import serve as command
from regard.commands.shared.models import load_reader
from regard.show.server import listen
from terminal import in_terminal

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from regard.show.server.limits import TooLarge


@pytest.fixture(scope="module")
def reader():
    return load_reader("tiny", "cpu")


@pytest.fixture
def started():
    """Starts `regard serve` on a free port, or Python with other arguments; gives the process and its port."""
    processes = []

    def start(*arguments):
        process = subprocess.Popen(
            [sys.executable, *(arguments or ("-m", "regard", "serve", "--port", "0"))],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        processes.append(process)
        lines = [process.stdout.readline() for _ in range(4)]
        return process, int(re.search(r":(\d+)/", lines[2])[1])

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def ask(port, text):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = json.dumps({"text": text})
    connection.request("POST", "/api/see", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    content = json.loads(answer.read())
    connection.close()
    return answer.status, content


def test_a_page_has_the_words_of_the_text_and_the_name_of_the_model(reader):
    report = command.page_of("tiny", reader, "The cat sat", 512).document["reports"][0]
    assert report["title"] == "tiny"
    assert report["sequences"][0]["pieces"] == ["The", " cat", " sat"]
    assert len(report["layers"]) == 6


def test_a_cut_is_shown_beside_the_uncut_text(reader):
    page = command.page_of("tiny", reader, "The cat sat on the mat. The cat sat", 512, (0, 2)).document
    assert [one["title"] for one in page["reports"]] == ["uncut", "without 0.2"]
    assert page["start"]["view"] == "compare"
    with pytest.raises(ValueError, match="head 8 does not exist"):
        command.page_of("tiny", reader, "The cat sat", 512, (0, 8))


@pytest.mark.parametrize(("text", "most", "longest"), [("a cat " * 5, 7, 7), ("a cat " * 500, 2000, 512)])
def test_a_text_with_too_many_tokens_is_refused_in_words_for_the_page(reader, text, most, longest):
    with pytest.raises(TooLarge, match=rf"^the text has \d+ tokens; at most {longest} are read here\. Shorten it\.$"):
        command.page_of("tiny", reader, text, most)


def test_it_answers_until_ctrl_c(started):
    process, port = started()
    status, answer = ask(port, "The cat sat")
    assert (status, answer["document"]["reports"][0]["title"]) == (200, "tiny")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (130, "", "")


def test_ctrl_c_does_not_wait_for_a_connection_that_is_open(started):
    process, port = started()
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/")
    connection.getresponse().read()
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=20) == ("", "")
    connection.close()
    assert process.returncode == 130


LONG_RUN = """
import sys, time
from regard.commands import serve
serve.page_of = lambda *_: time.sleep(600)
sys.argv = ["regard", "serve", "--port", "0"]
from regard.cli import main
main()
"""


def test_ctrl_c_does_not_wait_for_a_long_run_of_a_model(started):
    process, port = started("-c", LONG_RUN)
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("POST", "/api/see", b'{"text": "a"}', {"Content-Type": "application/json"})
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=20) == ("", "")
    connection.close()
    assert process.returncode == 130


def test_in_a_terminal_it_says_where_it_is_and_how_to_end_it():
    ended = in_terminal("serve", "--port", "0", ctrl_c_after="Ctrl-C ends it.")
    assert ended.status == 130
    assert ended.lines[1] == "  tiny"
    assert re.fullmatch(r"  http://127\.0\.0\.1:\d+/", ended.lines[2])
    assert "Traceback" not in ended.out


def test_other_computers_are_let_in_only_with_a_warning(monkeypatch, capsys):
    monkeypatch.setattr(listen, "run_server", lambda *_: None)
    command.serve(port=0, host="0.0.0.0")
    assert "Every computer that can reach 0.0.0.0 can use it; there is no password." in capsys.readouterr().out
    command.serve(port=0)
    assert "password" not in capsys.readouterr().out


def test_the_browser_is_opened_on_request(monkeypatch):
    opened = []
    monkeypatch.setattr(listen, "run_server", lambda *_: None)
    monkeypatch.setattr("webbrowser.open", opened.append)
    command.serve(port=0)
    command.serve(port=0, opens=True)
    assert len(opened) == 1
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", opened[0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--port", "70000"], r"--port 70000 must be between 0 and 65535; 0 takes a free one"),
        (["--max-tokens", "0"], r"--max-tokens 0 must be at least 1"),
        (["--port", "0", "--model", "./nowhere"], r"--model \./nowhere: there is no directory \./nowhere"),
    ],
)
def test_a_mistake_is_one_line(arguments, message):
    result = CliRunner().invoke(cli.app, ["serve", *arguments])
    assert isinstance(result.exception, ValueError)
    assert re.match(message, str(result.exception))


def test_what_is_missing_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    with pytest.raises(
        ValueError, match=r'regard serve needs starlette and uvicorn; pip install ("\.\[serve\]"|starlette uvicorn)$'
    ):
        command.serve()

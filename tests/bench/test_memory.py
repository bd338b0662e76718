"""Memory on the CPU, measured in a new process."""

import subprocess
import sys

import pytest

from regard.bench import memory
from regard.bench.peers import OURS, TEXTBOOK, Shape


def test_memory_is_measured_in_a_new_process():
    assert 1_000_000 < memory.measure(OURS, Shape(64, 2, 1, 4099), timeout=120.0) < 1_000_000_000


def test_the_memory_of_the_textbook_layer_is_estimated_where_it_does_not_fit(monkeypatch, capsys):
    monkeypatch.setattr(memory, "measure", lambda name, shape: 345_600_000)
    monkeypatch.setattr(memory, "free_memory", lambda on: 9_000_000_000)
    assert memory.main(["--textbook"]) == 0
    out = capsys.readouterr().out
    assert "regard                   346 MB  measured" in out
    assert "MB  estimated (free memory: 9,000 MB)" in out
    assert max(map(len, out.splitlines())) <= 80


def test_the_textbook_layer_is_measured_where_it_fits(monkeypatch, capsys):
    measured = []
    monkeypatch.setattr(memory, "measure", lambda name, shape: measured.append((name, shape.tokens)) or 2_000_000)
    monkeypatch.setattr(memory, "free_memory", lambda on: 9_000_000_000)
    assert memory.main(["--textbook", "--tokens", "37"]) == 0
    assert measured == [(OURS, 37), (TEXTBOOK, 37)]
    assert "textbook layer             2 MB  measured" in capsys.readouterr().out


def test_a_process_that_fails_says_what_and_why():
    with pytest.raises(RuntimeError, match=r"it ended with status 1: .*No module named regard\.bench\.nowhere"):
        memory.bytes_from_process(["regard.bench.nowhere"], "it")


def test_the_peak_counts_memory_that_is_free_again():
    held = "held = bytes(256 << 20).replace(b'\\0', b'x'); del held"
    code = f"from regard.bench.memory import high_water; before = high_water(); {held}; print(high_water() - before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 200 << 20 < int(done.stdout) < 600 << 20


def test_a_text_without_tokens_is_refused_before_anything_is_measured(capsys):
    with pytest.raises(SystemExit, match="2"):
        memory.main(["--tokens", "0"])
    assert capsys.readouterr().err == "regard: --tokens 0 must be above 0; see regard bench memory --help\n"

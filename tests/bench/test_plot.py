"""Times as bars."""

import sys

import pytest

from regard.bench.plot import Panel, plot


def test_the_plot_is_a_png(tmp_path):
    pytest.importorskip("matplotlib")
    assert plot(tmp_path / "found.png", [Panel("T=7", [("we", 1.0, True), ("they", 2.0, False)])]) is None
    assert (tmp_path / "found.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_one_sentence_says_so(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert plot(tmp_path / "found.png", [Panel("T=7", [("we", 1.0, True)])]).startswith("no plot: matplotlib is not")
    assert not (tmp_path / "found.png").exists()


def test_nothing_to_draw_is_a_sentence(tmp_path):
    pytest.importorskip("matplotlib")
    assert plot(tmp_path / "found.png", []) == "no plot: nothing was measured"

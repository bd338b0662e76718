"""The plot of a run's loss."""

import sys

import pytest

from regard.show.terminal.training import plot_loss

LINES = [{"step": n, "loss": 1 / n, "tokens_per_second": 12345.6} for n in range(1, 8)]


def test_the_loss_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    assert plot_loss([*LINES, {"step": 8, "loss": 0.1, "val_loss": 0.2}], tmp_path / "loss.png")
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_there_is_no_picture(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert not plot_loss(LINES, tmp_path / "loss.png")
    assert not list(tmp_path.iterdir())

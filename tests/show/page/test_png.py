"""A head as a PNG that any viewer reads, in the colours of the page."""

import io

import numpy as np
import pytest

from regard.show.page.png import MOST, head_png


def pixels(png):
    """The pixels (rows, columns, RGBA) of a PNG."""
    image = pytest.importorskip("PIL.Image").open(io.BytesIO(png))
    return np.asarray(image.convert("RGBA"))


def test_a_weight_has_its_colour_and_a_hidden_cell_none():
    weights = np.array([[1.0, np.nan, np.nan], [0.0, 1.0, np.nan]])
    image = pixels(head_png(weights))
    scale = 480 // 3
    assert image.shape == (2 * scale, 3 * scale, 4)
    cells = image.reshape(2, scale, 3, scale, 4).swapaxes(1, 2)
    assert (cells == cells[:, :, :1, :1]).all()
    dark, pale, none = [0x12, 0x27, 0x45, 255], [0xF0, 0xF3, 0xF7, 255], [0, 0, 0, 0]
    np.testing.assert_array_equal(cells[:, :, 0, 0], [[dark, none, none], [pale, dark, none]])


def test_a_large_map_is_averaged_and_stays_small():
    noise = np.random.default_rng(3).random((2 * MOST + 1, 3 * MOST + 2))
    png = head_png(noise)
    assert len(png) < 60_000
    assert pixels(png).shape[:2] == (3 * MOST, 3 * MOST)
    even = pixels(head_png(np.full((MOST + 7, MOST + 7), 1.0)))
    assert (even == [0x12, 0x27, 0x45, 255]).all()

"""A head as a PNG, for viewers that run no widgets: the weights in the colours of the page, hidden cells transparent.

Written with zlib alone. js/color.js has the same scale: one hue, lightness by weight^0.6, between anchors in OKLab.
"""

from __future__ import annotations

import struct
import zlib
from functools import cache

import numpy as np
from jaxtyping import Float

MOST = 160  # rows and columns; so many stay under 60 kB even where they are noise
_SIDE = 480  # pixels; cells are enlarged to about this
_POWER = 0.6
_COLORS = 255  # and one more for hidden cells
_ANCHORS = {0.0: 0xF0F3F7, 0.02: 0xD0DEF2, 0.1: 0x9ABCEF, 0.25: 0x5E93E2, 0.5: 0x2A63B5, 1.0: 0x122745}
# Björn Ottosson's matrices: linear sRGB to the cone responses, and their cube roots to OKLab.
_TO_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
_TO_LAB = np.array(
    [
        [0.2104542553, 0.793617785, -0.0040720468],
        [1.9779984951, -2.428592205, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.808675766],
    ]
)


def head_png(weights: Float[np.ndarray, "T S"]) -> bytes:
    """A map of weights between 0 and 1, a row for each query; NaN is hidden. Larger maps are averaged."""
    T, S = weights.shape
    small = _averaged(weights, min(T, MOST), min(S, MOST))
    cells = np.rint(np.nan_to_num(small).clip(0, 1) ** _POWER * (_COLORS - 1)).astype(np.uint8)
    cells[np.isnan(small)] = _COLORS
    scale = max(1, _SIDE // max(1, *cells.shape))
    return _indexed_png(np.kron(cells, np.ones((scale, scale), np.uint8)))


def _averaged(weights: Float[np.ndarray, "T S"], rows: int, cols: int) -> Float[np.ndarray, "rows cols"]:
    """Means of the visible weights over rows × cols cells that differ in size by at most one."""
    T, S = weights.shape
    if (rows, cols) == (T, S):
        return weights
    visible = ~np.isnan(weights)
    sums, counts = (
        np.add.reduceat(
            np.add.reduceat(values.astype(float), np.arange(rows) * T // rows, axis=0),
            np.arange(cols) * S // cols,
            axis=1,
        )
        for values in (np.nan_to_num(weights), visible)
    )
    with np.errstate(invalid="ignore"):
        return sums / counts  # 0 / 0 is hidden


@cache
def palette() -> np.ndarray:
    """The colours of weights, (255, 3) bytes, evenly spaced in weight^0.6."""
    rgb = np.array([[color >> 16, color >> 8 & 255, color & 255] for color in _ANCHORS.values()]) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    lab = np.cbrt(linear @ _TO_CONES.T) @ _TO_LAB.T
    places = np.array(list(_ANCHORS)) ** _POWER
    between = np.stack([np.interp(np.linspace(0, 1, _COLORS), places, one) for one in lab.T], -1)
    back = ((between @ np.linalg.inv(_TO_LAB).T) ** 3 @ np.linalg.inv(_TO_CONES).T).clip(0, 1)
    gamma = np.where(back <= 0.0031308, 12.92 * back, 1.055 * back ** (1 / 2.4) - 0.055)
    return np.asarray(np.rint(gamma * 255), np.uint8)


def _indexed_png(pixels: np.ndarray) -> bytes:
    """A PNG whose pixels are numbers of colours."""
    height, width = pixels.shape
    rows = np.pad(pixels, ((0, 0), (1, 0)))  # each row begins with its filter: none
    opacity = b"\xff" * _COLORS + b"\x00"
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        (b"PLTE", palette().tobytes() + bytes(3)),
        (b"tRNS", opacity),
        (b"IDAT", zlib.compress(rows.tobytes(), 9)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        for name, content in chunks
    )

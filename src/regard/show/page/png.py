"""A head as a PNG, for viewers that run no widgets: the weights in the colours of the page, hidden cells transparent.

Written with zlib alone.
"""

import struct
import zlib

import numpy as np
from jaxtyping import Float

from regard.show.page.encode import pool
from regard.show.palette import POWER, WEIGHTS, palette

MOST = 160  # rows and columns; so many stay under 60 kB even where they are noise
_SIDE = 480  # pixels; cells are enlarged to about this
_COLORS = 255  # and one more for hidden cells


def head_png(weights: Float[np.ndarray, "T S"]) -> bytes:
    """A map of weights between 0 and 1, a row for each query; NaN is hidden. Larger maps are averaged."""
    T, S = weights.shape
    small = _averaged(weights, min(T, MOST), min(S, MOST))
    cells = np.rint(np.nan_to_num(small).clip(0, 1) ** POWER * (_COLORS - 1)).astype(np.uint8)
    cells[np.isnan(small)] = _COLORS
    scale = max(1, _SIDE // max(1, *cells.shape))
    return _indexed_png(np.kron(cells, np.ones((scale, scale), np.uint8)))


def _averaged(weights: Float[np.ndarray, "T S"], rows: int, cols: int) -> Float[np.ndarray, "rows cols"]:
    """Means of the visible weights over rows × cols cells that differ in size by at most one."""
    T, S = weights.shape
    if (rows, cols) == (T, S):
        return weights
    sums, counts = (pool(one.astype(float), rows, cols) for one in (np.nan_to_num(weights), ~np.isnan(weights)))
    with np.errstate(invalid="ignore"):
        return np.asarray(sums / counts)  # 0 / 0 is hidden


def _indexed_png(pixels: np.ndarray) -> bytes:
    """A PNG whose pixels are numbers of colours."""
    height, width = pixels.shape
    rows = np.pad(pixels, ((0, 0), (1, 0)))  # each row begins with its filter: none
    opacity = b"\xff" * _COLORS + b"\x00"
    colors = np.rint(255 * palette(WEIGHTS, _COLORS)).astype(np.uint8)
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        (b"PLTE", colors.tobytes() + bytes(3)),
        (b"tRNS", opacity),
        (b"IDAT", zlib.compress(rows.tobytes(), 9)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        for name, content in chunks
    )

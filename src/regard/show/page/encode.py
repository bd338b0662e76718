"""Weights as bytes: the most exact form that fits a page.

linear16 stores weight · 65534 in two bytes, hidden cells as 65535: within 8e-6; coarser, weight · 4095: within
1.3e-4. root7 stores the root of the weight in at most seven bits, and the eight largest weights of each query exactly:
for many heads over many tokens. A causal head is a triangle. js/data/page-data.js reads both.
"""

import struct
import zlib
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

TOP = 8  # exact weights of each query in root7
_HIDDEN16, _HIDDEN7, _NO_KEY = 65535, 127, 65535
_GZIP = bytes([31, 139, 8, 0, 0, 0, 0, 0, 0, 255])  # the header, without a time


@dataclass(frozen=True)
class Encoding:
    """How the weights of a layer are stored.

    highest: of root7, the weight of the largest code. Beyond the largest weight outside the exact ones, which is
    highest ÷ 2**coarse, it makes fewer codes do, which compress better: each step makes the error √2 as large.
    coarse: of linear16, each step makes the error twice as large.
    """

    kind: Literal["linear16", "root7"]
    triangle: bool
    highest: float = 1.0
    coarse: int = 0

    @property
    def one(self) -> int:
        """The code of weight 1 in linear16."""
        return 65534 >> self.coarse

    @property
    def planes(self) -> int:
        """Equal parts of the bytes that have little in common."""
        return 2 if self.kind == "linear16" else 1

    @property
    def error(self) -> float:
        """The largest difference between a weight and what is stored of it."""
        if self.kind == "linear16":
            return 0.5 / self.one
        return self.highest * (126 / 2 ** (self.coarse / 2) + 0.25) / 126**2


def encode(weights: Float[Tensor, "T S"], visible: Bool[Tensor, "T S"], encoding: Encoding) -> bytes:
    """The weights of one head as bytes, not compressed.

    >>> encode(torch.tensor([[1.0, 0.0], [0.5, 0.5]]), torch.tensor([[True, False], [True, True]]),
    ...        Encoding("linear16", triangle=True)).hex()
    'ff7f7ffeffff'
    """
    cells = np.ones(weights.shape, bool)
    cells = np.tril(cells) if encoding.triangle else cells
    visible = visible & weights.isfinite()  # NaN is no weight: drawn as hidden, not as 0
    weights = weights.nan_to_num(0.0)
    values, seen = weights.numpy()[cells].astype(np.float64), visible.numpy()[cells]
    if encoding.kind == "linear16":
        codes = np.where(seen, np.rint(values * encoding.one), _HIDDEN16).astype(np.uint16)
        return (codes >> 8).astype(np.uint8).tobytes() + (codes & 255).astype(np.uint8).tobytes()
    scaled = np.sqrt(np.clip(values / max(encoding.highest, 1e-12), 0, 1))
    codes = np.where(seen, np.rint(scaled * 126), _HIDDEN7).astype(np.uint8)
    return codes.tobytes() + _exact(weights, visible)


def decode_weights(content: bytes, T: int, S: int, encoding: Encoding) -> Float[np.ndarray, "T S"]:
    """The weights of one head from its bytes, NaN where the mask hides the key; as js/data/page-data.js reads them."""
    cells = np.ones((T, S), bool)
    cells = np.tril(cells) if encoding.triangle else cells
    stored, count = np.frombuffer(content, np.uint8), int(cells.sum())
    weights = np.full((T, S), np.nan)
    if encoding.kind == "linear16":
        codes = stored[:count].astype(int) * 256 + stored[count:]
        weights[cells] = np.where(codes == _HIDDEN16, np.nan, codes / encoding.one)
        return weights
    codes = stored[:count].astype(int)
    weights[cells] = np.where(codes == _HIDDEN7, np.nan, (codes / 126) ** 2 * encoding.highest)
    exact = np.frombuffer(content, "<u2", offset=count).reshape(T, 2, TOP)
    rows, places = np.nonzero(exact[:, 0] != _NO_KEY)
    weights[rows, exact[rows, 0, places]] = exact[rows, 1, places] / 65535
    return weights


def _exact(weights: Float[Tensor, "T S"], visible: Bool[Tensor, "T S"]) -> bytes:
    """For each query, the keys of its largest weights and those weights, as little-endian 16-bit numbers."""
    T, S = weights.shape
    best = weights.masked_fill(~visible, -1).topk(min(TOP, S), dim=-1)
    exact = np.full((T, 2 * TOP), _NO_KEY, dtype="<u2")
    count = best.values.shape[1]
    exact[:, :count] = np.where(best.values.numpy() >= 0, best.indices.numpy(), _NO_KEY)
    exact[:, TOP : TOP + count] = np.rint(best.values.clamp(0, 1).double().numpy() * 65535)
    return exact.tobytes()


def strongest_keys(weights: Float[Tensor, "*H T S"], visible: Bool[Tensor, "*H T S"]) -> bytes:
    """For each query, its key with the largest weight, and that weight · 65535: two little-endian 16-bit numbers."""
    if not weights.shape[-1]:
        return np.full((*weights.shape[:-1], 2), _NO_KEY, dtype="<u2").tobytes()
    weight, key = weights.masked_fill(~(visible & weights.isfinite()), -1).max(-1)
    return pack_pairs(torch.where(weight >= 0, key, -1), weight)


def pack_pairs(keys: Int[Tensor, "*H T"], weights: Float[Tensor, "*H T"]) -> bytes:
    """A key and its weight for each query, as strongest_keys says; −1 is no key."""
    codes = (weights.clamp(0, 1).double() * 65535).round().long()
    return torch.stack([torch.where(keys < 0, _NO_KEY, keys), codes], -1).numpy().astype("<u2").tobytes()


def is_triangle(visible: Bool[Tensor, "H T S"]) -> bool:
    """Does the mask hide everything after the query?"""
    T, S = visible.shape[1:]
    return T == S and not bool(visible.triu(1).any())


def highest_outside(weights: Float[Tensor, "H T S"]) -> float:
    """The largest weight that is not among the exact ones of its query."""
    S = weights.shape[-1]
    return float(weights.topk(TOP + 1, dim=-1).values[..., -1].max()) if S > TOP else 0.0


def compress(content: bytes, planes: int = 1) -> bytes:
    """gzip, the same bytes every time; planes: equal parts of the content, each compressed as suits it.

    >>> zlib.decompress(compress(b"aaab", planes=2), wbits=31)
    b'aaab'
    """
    edges = [len(content) * plane // planes for plane in range(planes + 1)]
    parts = [content[start:end] for start, end in pairwise(edges)]
    body = b"".join(
        _deflated(part, is_last) for part, is_last in zip(parts, [*[False] * (planes - 1), True], strict=True)
    )
    return _GZIP + body + struct.pack("<II", zlib.crc32(content), len(content) & 0xFFFFFFFF)


def _deflated(part: bytes, is_last: bool) -> bytes:
    """Blocks of a deflate stream: of two ways the shorter. Noise is longer where it is searched for repetitions."""
    found = []
    for strategy in (zlib.Z_DEFAULT_STRATEGY, zlib.Z_RLE):
        stream = zlib.compressobj(6, zlib.DEFLATED, -15, 9, strategy)
        found.append(stream.compress(part) + stream.flush(zlib.Z_FINISH if is_last else zlib.Z_FULL_FLUSH))
    return min(found, key=len)


def thumbnail(weights: Float[Tensor, "T S"], visible: Bool[Tensor, "T S"], most: int) -> np.ndarray:
    """A head as a small picture: how much of a row's weight is in each cell, as 254 · its root; 255 is hidden."""
    return np.asarray(thumbnails(weights[None], visible[None], most)[0])


def thumbnails(weights: Float[Tensor, "H T S"], visible: Bool[Tensor, "H T S"], most: int) -> np.ndarray:
    """The same of several heads; what a mask hides from all of them alike is looked at once."""
    H, T, S = weights.shape
    visible = visible & weights.isfinite()
    rows, cols = min(T, most), min(S, most)
    alike = visible[:1] if bool((visible == visible[:1]).all()) else visible
    queries = [pool(one.any(-1, keepdim=True).numpy(), rows, 1).clip(min=1) for one in alike] * (H // len(alike))
    hidden = [pool(one.numpy(), rows, cols) == 0 for one in alike] * (H // len(alike))
    pictures = np.empty((H, rows, cols), np.uint8)
    for head, (one, seen) in enumerate(zip(weights.numpy(), visible.numpy(), strict=True)):
        mass = pool(np.where(seen, one, 0), rows, cols)
        pictures[head] = np.where(hidden[head], 255, np.rint(np.sqrt((mass / queries[head]).clip(0, 1)) * 254))
    return pictures


def pool(values: np.ndarray, rows: int, cols: int) -> np.ndarray:
    """Sums over rows × cols cells that differ in size by at most one."""
    T, S = values.shape
    by_row = np.add.reduceat(values, np.arange(rows) * T // max(rows, 1), axis=0, dtype=np.float64)
    return np.asarray(np.add.reduceat(by_row, np.arange(cols) * S // max(cols, 1), axis=1))

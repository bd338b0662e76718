"""Blocks that are computed when somebody asks for them: a notebook shows a report at once, whatever its length.

A file has to hold every head; a kernel can compute the one that is opened. Of all heads, a page needs small pictures
and the strongest key of each query: these are computed once, when they are first asked for.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any

from torch import Tensor

from regard.heads.report.report import Seen
from regard.show.page.encode import Encoding, compress, encode, strongest_keys, thumbnail
from regard.show.page.long import GRID, LONGEST_EXACT, LongLayer
from regard.show.page.payload import (
    THUMBNAIL,
    PageData,
    Titled,
    describe_page,
    describe_report,
    described_heads,
    picture_size,
)


class BlocksOnDemand(UserDict[str, Any]):
    """Blocks by key, as a page holds them; each is set as the function that computes it.

    >>> blocks = BlocksOnDemand({"weights.0.4.3": lambda: b"..."})
    >>> list(blocks), blocks["weights.0.4.3"]
    (['weights.0.4.3'], b'...')
    """

    def __getitem__(self, key: str) -> bytes:
        return bytes(self.data[key]())


@dataclass(frozen=True)
class LayerOnDemand:
    """A layer of a report for one text; its weights are computed head by head."""

    seen: Seen
    layer: int
    text: int
    sizes: tuple[int, int, int]  # (H, T, S)
    kv_heads: int
    triangle: bool
    long: bool

    @staticmethod
    def of(seen: Seen, layer: int, text: int) -> LayerOnDemand:
        """A layer whose queries and keys were kept; it is refused here if they were not, before anything is shown."""
        view = seen[layer]
        view.record.need("the page")
        _, H, T, S = view.record.sizes
        long = max(T, S) > LONGEST_EXACT
        # Of a long text, looking at every cell would take as long as the weights do.
        triangle = view.hides_future or (not long and T == S and not bool(view.visible(text)[0].triu(1).any()))
        return LayerOnDemand(seen, layer, text, (H, T, S), view.kv_heads, triangle, long)

    @property
    def encoding(self) -> Encoding:
        """How the weights are stored, or the grid of a long text."""
        return Encoding("linear16", self.triangle)

    @property
    def name(self) -> str:
        """The name of its blocks."""
        return "long" if self.long else "weights"

    def grid(self) -> dict[str, int] | None:
        """The size of the grid of a long text, as js/data/long-head.js reads it."""
        _, T, S = self.sizes
        return {"rows": min(GRID, T), "cols": min(GRID, S)} if self.long else None

    def block(self, head: int) -> bytes:
        """One head, compressed."""
        if self.long:
            return compress(LongLayer.of(self.seen, self.layer, self.text, heads=[head]).block(0, self.encoding))
        return compress(encode(*self._weights(head), self.encoding))

    def small(self, most: int) -> tuple[bytes, bytes]:
        """Of every head, a picture of at most `most` rows and columns, and the largest weight of each query."""
        H = self.sizes[0]
        if self.long:
            layer = LongLayer.of(self.seen, self.layer, self.text)
            return (
                b"".join(layer.thumbnail(head, most) for head in range(H)),
                b"".join(layer.strongest(head) for head in range(H)),
            )
        heads = [self._weights(head) for head in range(H)]
        return b"".join(thumbnail(*one, most).tobytes() for one in heads), b"".join(
            strongest_keys(*one) for one in heads
        )

    @cached_property
    def _visible(self) -> Tensor:
        """(H, T, S) bool: which weights the mask leaves visible."""
        return self.seen[self.layer].visible(self.text)[0].cpu()

    def _weights(self, head: int) -> tuple[Tensor, Tensor]:
        """The weights of one head, (T, S), and which of them are visible."""
        return self.seen[self.layer, head].weights(text=self.text)[0].float().cpu(), self._visible[head]


def page_on_demand(reports: Sequence[Titled]) -> PageData:
    """What a page shows of these reports, with blocks that are computed when they are asked for."""
    blocks = BlocksOnDemand()
    heads: dict[int, dict[str, Any]] = {}  # of each report; its texts share them
    described = []
    for number, titled in enumerate(reports):
        seen = titled.seen
        maps = [LayerOnDemand.of(seen, layer, titled.text) for layer in range(len(seen))]
        if id(seen) not in heads:
            heads[id(seen)] = described_heads(seen)
        encodings, pictures = [one.encoding for one in maps], picture_size(maps, always=True)
        described.append(describe_report(titled, maps, encodings, heads[id(seen)], pictures))
        for layer, one in enumerate(maps):
            for head in range(one.sizes[0]):
                blocks[f"{one.name}.{number}.{layer}.{head}"] = partial(one.block, head)
        small = _small(maps)
        blocks[f"thumbnails.{number}"], blocks[f"strongest.{number}"] = partial(small, 0), partial(small, 1)
    return PageData(describe_page(described), blocks)


def _small(maps: Sequence[LayerOnDemand]) -> Callable[[int], bytes]:
    """Gives the pictures (0) or the strongest keys (1) of all heads of a report, computed once."""

    @cache
    def both() -> list[bytes]:
        return [compress(b"".join(parts)) for parts in zip(*(one.small(THUMBNAIL) for one in maps), strict=True)]

    return lambda which: both()[which]

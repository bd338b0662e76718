"""Blocks that are computed when somebody asks for them: a notebook shows a report at once, whatever its length.

A file has to hold every head; a kernel can compute the one that is opened. Of all heads, a page needs small pictures and
the strongest key of each query: these are computed once, when they are first asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from torch import Tensor

from regard.heads.report.report import Seen
from regard.show.page.encode import Encoding, compress, encode, strongest, thumbnail
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


class BlocksOnDemand(Mapping[str, bytes]):
    """Blocks by key, as a page holds them; each is computed by its function.

    >>> blocks = BlocksOnDemand()
    >>> blocks.add("weights.0.4.3", lambda: b"...")
    >>> list(blocks), blocks["weights.0.4.3"]
    (['weights.0.4.3'], b'...')
    """

    def __init__(self) -> None:
        self._makers: dict[str, Callable[[], bytes]] = {}

    def add(self, key: str, make: Callable[[], bytes]) -> None:
        """A block, and the function that computes it."""
        self._makers[key] = make

    def __getitem__(self, key: str) -> bytes:
        return self._makers[key]()

    def __contains__(self, key: object) -> bool:
        return key in self._makers

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


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
        return b"".join(thumbnail(*one, most).tobytes() for one in heads), b"".join(strongest(*one) for one in heads)

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
                blocks.add(f"{one.name}.{number}.{layer}.{head}", partial(one.block, head))
        small = _Small(maps)
        blocks.add(f"thumbnails.{number}", partial(small.get, 0))
        blocks.add(f"strongest.{number}", partial(small.get, 1))
    return PageData(describe_page(described), blocks)


class _Small:
    """The pictures and the strongest keys of all heads of a report, computed once."""

    def __init__(self, maps: Sequence[LayerOnDemand]) -> None:
        self.maps = maps
        self.blocks: list[bytes] = []

    def get(self, which: int) -> bytes:
        """The pictures (0) or the strongest keys (1)."""
        if not self.blocks:
            small = [one.small(THUMBNAIL) for one in self.maps]
            self.blocks = [compress(b"".join(parts)) for parts in zip(*small, strict=True)]
        return self.blocks[which]

"""A layer of a page: its sizes, and its heads, which are computed when they are asked for.

A file has to hold every head; a kernel can compute the one that is opened, so that a notebook shows a report at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.heads.report.report import Seen
from regard.show.page.encode import Encoding, compress, encode, is_triangle, strongest_keys, thumbnails
from regard.show.page.long import GRID, LONGEST_EXACT, LongLayer


@dataclass(frozen=True)
class ExactHeads:
    """The weights of heads for one text, and which cells the mask leaves visible; methods as in LongLayer."""

    weights: Float[Tensor, "H T S"]
    visible: Bool[Tensor, "H T S"]

    @property
    def encoding(self) -> Encoding:
        return Encoding("linear16", is_triangle(self.visible))

    def block(self, head: int, encoding: Encoding) -> bytes:
        return encode(self.weights[head], self.visible[head], encoding)

    def thumbnails(self, most: int) -> bytes:
        return thumbnails(self.weights, self.visible, most).tobytes()

    def strongest(self) -> bytes:
        return strongest_keys(self.weights, self.visible)


class PageLayer:
    """A layer of a report, for one text of the batch."""

    def __init__(self, seen: Seen, layer: int, text: int) -> None:
        self.seen, self.layer, self.text, self.view = seen, layer, text, seen[layer]
        _, H, T, S = self.view.record.sizes
        self.sizes = H, T, S
        self.is_long = max(T, S) > LONGEST_EXACT
        self.name = "long" if self.is_long else "weights"  # of its blocks
        # Of a long text, the size of the grid, as js/data/long-head.js reads it.
        self.grid = {"rows": min(GRID, T), "cols": min(GRID, S)} if self.is_long else None

    @cached_property
    def encoding(self) -> Encoding:
        """How heads that are computed one by one are stored, or their grids; the same for all of them."""
        # Of a long text, looking at every cell would take as long as the weights do.
        return Encoding("linear16", self.view.hides_future or (not self.is_long and is_triangle(self._visible)))

    @cached_property
    def _visible(self) -> Bool[Tensor, "H T S"]:
        return self.view.visible(self.text)[0].cpu()

    def heads(self, numbers: Sequence[int] | None = None) -> ExactHeads | LongLayer:
        """Compute these heads, or all of them."""
        chosen = list(range(self.sizes[0]) if numbers is None else numbers)
        if self.is_long:
            return LongLayer.of(self.seen, self.layer, self.text, heads=chosen)
        weights = [self.view[head].weights(text=self.text)[0].float().cpu() for head in chosen]
        return ExactHeads(torch.stack(weights), self._visible[chosen])

    def block(self, head: int) -> bytes:
        """One head, compressed."""
        return compress(self.heads([head]).block(0, self.encoding), 1 if self.is_long else self.encoding.planes)

    def small(self, most: int) -> tuple[bytes, bytes]:
        """Of every head, a picture of at most `most` rows and columns, and the largest weight of each query."""
        heads = self.heads()
        return heads.thumbnails(most), heads.strongest()

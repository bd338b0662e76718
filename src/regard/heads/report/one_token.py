"""One token in every head: where it looks, and who looks at it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from regard.heads.report.listing import Listing
from regard.heads.report.record import Record
from regard.heads.report.texts import texts_of
from regard.heads.report.views import Head, SeenLayer
from regard.support.tokens import TextTokens


class TokenInHead(NamedTuple):
    """What one head does with the token.

    weights: (S,), where the token looks. received: (T,), how much each query looks at it; NaN in cross-attention, where
    it is not among the keys. telling: the largest weight on any token but the first, which many heads look at anyway.
    """

    head: Head
    weights: Tensor
    received: Tensor
    telling: float


class TokenInHeads(Listing[TokenInHead]):
    """One token in every head, the most telling head first; prints as a table. `seen.at("sat")` makes it.

    >>> import regard
    >>> layer = regard.MultiHeadAttention(d_in=8, d_out=8, context_length=16, dropout=0.0, num_heads=2)
    >>> with regard.watch(layer, tokens=["The", "cat", "sat"]) as seen:
    ...     out = layer(torch.randn(1, 3, 8))
    >>> sat = seen.at("sat")
    >>> sat.position, sat.weights.shape
    (2, torch.Size([1, 2, 3]))
    """

    def __init__(self, layers: Sequence[SeenLayer], row: int, text: int) -> None:
        self.position, self.text = row, text
        self._layers = [_of_layer(layer, row, text) for layer in layers]
        super().__init__(sorted(chain(*self._layers), key=lambda one: -one.telling))

    @property
    def name(self) -> str:
        """The token's label, or its position where the tokens are unknown."""
        texts = self[0].head.query_tokens
        return f"token {self.position}" if texts is None else texts[self.text].labels[self.position]

    @property
    def weights(self) -> Float[Tensor, "L H S"]:
        """Where the token looks, in every head of every layer."""
        return self._stacked("weights", "keys")

    @property
    def received(self) -> Float[Tensor, "L H T"]:
        """How much each query looks at the token, in every head of every layer."""
        return self._stacked("received", "queries")

    def _stacked(self, name: str, what: str) -> Tensor:
        layers = [torch.stack([getattr(one, name) for one in heads]) for heads in self._layers]
        if len({layer.shape for layer in layers}) > 1:
            sizes = ", ".join(
                f"{heads[0].head.layer}: {len(heads)} × {len(getattr(heads[0], name))}" for heads in self._layers
            )
            raise ValueError(
                f"{name} of layers with different sizes ({sizes}: heads × {what}) is no one tensor; choose a layer: "
                f"seen.at({self.position}, layers=0).{name}"
            )
        return torch.stack(layers)


def _of_layer(layer: SeenLayer, row: int, text: int) -> list[TokenInHead]:
    record = layer.record
    weights = layer.weights(rows=row, text=text)[0, :, 0]  # (H, S)
    if not record.has_positions:
        received = torch.full((len(layer), record.sizes[2]), torch.nan)
    else:
        received = layer.weights(cols=int(record.positions()[row]), text=text)[0, :, :, 0]
    others = weights.clone()
    others[:, _first_key(record, text)] = 0
    telling = others.amax(-1).tolist()
    return [TokenInHead(head, weights[i], received[i], telling[i]) for i, head in enumerate(layer)]


def _first_key(record: Record, text: int) -> int:
    """The first key that is not padding."""
    keys = texts_of(record).keys
    padding: Sequence[bool] = keys[text].padding if keys is not None else ()
    return next((i for i, padded in enumerate(padding) if not padded), 0)


def common_texts(layers: Sequence[SeenLayer], word: str | int) -> list[TextTokens] | None:
    """The texts of the queries of these layers, which must be the same in all of them."""
    known = [(layer.query_tokens, layer.record.sizes[2]) for layer in layers]
    other = next((i for i, one in enumerate(known) if one != known[0]), None)
    if other is not None:
        raise ValueError(
            f"layers {layers[0].layer} ({layers[0].name}) and {layers[other].layer} ({layers[other].name}) have other "
            f"queries, so {word!r} is not one token; choose layers of one text: seen.at({word!r}, layers=[…])"
        )
    return known[0][0]

"""watch: what every head of a model does, measured exactly while it runs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from regard.watch.files import load_seen
from regard.watch.intercept import intercept
from regard.watch.report import Seen

__all__ = ["Seen", "load_seen", "watch"]


@contextmanager
def watch(
    model: nn.Module,
    *,
    collect: Iterable[str] | None = None,
    keep: bool | None = None,
    tokens: Tensor | None = None,
    padding: Tensor | None = None,
) -> Iterator[Seen]:
    """See what every head does while the model runs; the model, its outputs and its speed stay as they are.

    >>> import torch, regard
    >>> layer = regard.MultiHeadAttention(d_in=8, d_out=8, context_length=16, dropout=0.0, num_heads=2)
    >>> with regard.watch(layer) as seen:
    ...     out = layer(torch.randn(1, 5, 8))
    >>> seen[0, 1].entropy.shape
    torch.Size([1, 5])

    collect: the statistics to take, by name; see regard.watch.statistics. The usual set unless given.
    keep: keep queries and keys, so that top(), map() and weights() can be asked for afterwards. Unless told
        otherwise they are kept, and weights that a model writes out itself only while they are small.
    tokens: (B, S) ids, for induction and duplicate; found by themselves where the model is given input_ids.
    padding: (B, S) bool, True = a real token; found by itself where the model is given an attention_mask.
    """
    if "transformers" in sys.modules:
        from regard.watch.transformers import register

        register()
    seen = Seen(collect=collect, keep=keep)
    with intercept(model, seen.add, tokens=tokens, padding=padding):
        yield seen

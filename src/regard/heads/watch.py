"""watch: what every head of a model does, measured exactly while it runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from regard.heads.inputs.pieces import TextReader, WordReader, reader_of
from regard.heads.inputs.user_texts import Given
from regard.heads.intercept.intercept import intercept
from regard.heads.report.report import Seen, load_seen, remember_model
from regard.support.super_init import missing_init_explained

__all__ = ["Seen", "load_seen", "watch"]


@contextmanager
def watch(
    model: nn.Module,
    *,
    collect: Iterable[str] | None = None,
    keep: bool | None = None,
    tokenizer: Any = None,
    tokens: Tensor | Sequence[str] | Sequence[Sequence[str]] | Mapping[str, Any] | None = None,
    padding: Tensor | Mapping[str, Tensor] | None = None,
    values: bool = False,
) -> Iterator[Seen]:
    """See what every head does while the model runs; the model, its outputs and its speed stay as they are.

    >>> import torch, regard
    >>> layer = regard.MultiHeadAttention(d_in=8, d_out=8, context_length=16, dropout=0.0, num_heads=2)
    >>> with regard.watch(layer) as seen:
    ...     out = layer(torch.randn(1, 5, 8))
    >>> seen[0, 1].entropy.shape
    torch.Size([1, 5])

    `seen` prints as a table; `seen[layer, head]` is a head and `seen[layer]` a layer, by number or by name. Each has
    the statistics of docs/watch.md (entropy, distance, sink, previous, self, next, induction, …), (B, T) for a head;
    received, (B, S); and, computed on request, histogram, top(n), map(n) and weights(rows, cols).
    Rows that are padding, or that may attend to nothing, do not count: they are NaN, their keys −1 and their weights
    0. A statistic that is not defined for a row is NaN, too: the previous token of the first one, the last occurrence
    of a new token, a distance in cross-attention. Means leave NaN out. Weights are those before dropout.

    collect: the statistics to compute, by name. ("default", "received_mean", "histogram", "top", "map") is all of them.
        [default: "default", the usual set]
    keep: keep queries and keys, so that top(), map() and weights() can be computed afterwards. [default: yes; of models
        that compute their weights explicitly, only small weights]
    tokenizer: reads token ids as texts, so that tokens have names: `seen.tokens`, `seen.at("sat")`. A tokenizer of
        regard, of transformers or of the package tokenizers. [default: model.tokenizer, if there is one]
    tokens: (B, S) token ids, for induction and duplicate; or, for a model without token ids, the words themselves:
        ["The", "cat"], or a list of such lists, one for each text. A model that reads several texts takes ids by the
        names of modules: {"encoder": …, "decoder": …}. [default: the model's input_ids]
    padding: (B, S) bool, True = a real token, or a dict of such by the names of modules. [default: the model's
        attention_mask]
    values: keep what each head hands over, `seen[0, 2].context`, (B, T, D); `cut(model, …, to=seen)` lets heads of
        another run hand it over. Then `seen[0, 2].written()`, `.written_norm` and `.logits(token)` are what it writes,
        and `.ov` and `.qk` its two products. Costs as much memory as q: B · T · E numbers a layer, and time to find the
        model's linear maps; a file has none of them.
        torch.nn takes no fast path meanwhile. [default: no]

    Inside `regard.cut`, in either order, heads are reported as the cut leaves them: a removed edge has weight 0, and a
    head that is cut keeps its weights, what it looks at; its context is what it hands over instead.

    What a report cannot know for certain it says: `seen[0].marks`, `seen[0].basis`. A layer whose attention is not
    understood is named in a warning.

    Raises ValueError where the model was not called inside the block, or made no attention that can be seen.
    """
    if not isinstance(model, nn.Module):
        is_wrapped = isinstance(getattr(model, "model", None), nn.Module)  # a pipeline of transformers, …
        remedy = "watch its .model" if is_wrapped else "load the model first, then call it inside the block"
        raise ValueError(f"watch() takes a torch.nn.Module and this is a {type(model).__name__}; {remedy}")
    with missing_init_explained():
        ids, reader = _read_tokens(model, tokenizer, tokens)
        seen = Seen(collect=collect, keep=keep, reader=reader)
        remember_model(seen, model)
        with intercept(model, seen.add, tokens=ids, padding=padding, contexts=values, dropped=seen.drop):
            yield seen
            seen.measure()


def _read_tokens(model: nn.Module, tokenizer: Any, tokens: Any) -> tuple[Given, TextReader | None]:
    """Token ids, if the user gave any, and who reads ids as texts."""
    if isinstance(tokens, Mapping):
        wrong = [name for name, ids in tokens.items() if not isinstance(ids, Tensor)]
        if wrong:
            raise ValueError(f"tokens[{wrong[0]!r}] must be a tensor of token ids, (B, S)")
    if tokens is None or isinstance(tokens, (Tensor, Mapping)):
        return tokens, reader_of(model, tokenizer)
    words = _as_texts(tokens)
    if tokenizer is not None:
        raise ValueError("tokens are words, which need no tokenizer; leave one of them out")
    lengths = sorted({len(text) for text in words})
    if len(lengths) > 1:
        raise ValueError(
            f"the texts in tokens have {lengths[0]} to {lengths[-1]} words and must all be as long as the model's "
            'input; fill them with "" where the model has padding'
        )
    reader = WordReader(words)
    return torch.tensor(reader.ids, dtype=torch.long), reader


def _as_texts(tokens: Any) -> list[Sequence[str]]:
    """Words as a list of texts."""
    if isinstance(tokens, str):
        raise ValueError('tokens is one string; give a list of words: ["The", "cat"]')
    if isinstance(tokens, Sequence) and tokens and all(isinstance(word, str) for word in tokens):
        return [tokens]
    texts = list(tokens) if isinstance(tokens, Sequence) else []
    if not texts or any(isinstance(text, str) or not all(isinstance(word, str) for word in text) for text in texts):
        raise ValueError("tokens must be a tensor of token ids, (B, S), or lists of words, one for each text")
    return texts

"""The tokens of a record as texts, and positions by word.

Tokens are read from the ids of the call when somebody asks. Where ids or tokenizer are missing, the tokens are unknown,
and asking for a word says what to pass to watch().
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.heads.inputs.pieces import TextReader
from regard.heads.report.record import Record, RecordTexts
from regard.support.tokens import TextTokens

NO_TOKENIZER = "no tokenizer is known; give it to the watch: watch(model, tokenizer=…)"
NO_WORDS = (
    "the model was not called with token ids, so its tokens have no names; give them to the watch: "
    'watch(model, tokens=["The", "cat", …])'
)
NO_IDS = "the model was not called with token ids that can be seen; give them to the watch: watch(model, tokens=…)"


def texts_of(record: Record) -> RecordTexts:
    """The tokens of the queries and of the keys of a layer."""
    if record.texts is None:
        record.texts = _read(record)
    return record.texts


def _read(record: Record) -> RecordTexts:
    origins = [step.call.origin for step in record.steps]
    if record.reader is None:
        known = all((one.query_text if record.across else one.tokens) is not None for one in origins)
        return RecordTexts(None, None, NO_TOKENIZER if known else NO_WORDS)
    if record.across:  # queries and keys are different texts
        parts = [one.query_text.ids.cpu() for one in origins if one.query_text is not None]
        real, source = record.real().cpu(), origins[-1].key_text
        queries = read_texts(record.reader, torch.cat(parts, 1), real) if len(parts) == len(origins) else None
        return RecordTexts(queries, None if source is None else read_texts(record.reader, *source), NO_IDS)
    B, _, _, S = record.sizes
    ids, real, positions = torch.full((B, S), -1), torch.ones(B, S, dtype=torch.bool), record.positions()
    for (_, own), one in zip(record.spans(), origins, strict=True):
        if one.tokens is None:
            return RecordTexts(None, None, NO_IDS)
        ids[:, own] = one.tokens.cpu()
    real[:, positions] = record.real().cpu()
    keys, everywhere = read_texts(record.reader, ids, real), positions.tolist()
    same = everywhere == list(range(S))
    return RecordTexts(keys if same else [_some(text, everywhere) for text in keys], keys)


def read_texts(reader: TextReader, ids: Tensor, real: Tensor | None) -> list[TextTokens]:
    """The texts of these ids, (B, n); real: (B, n) bool, where it is known which are not padding."""
    if real is None or real.shape != ids.shape:
        real = torch.ones_like(ids, dtype=torch.bool)
    return [reader.read(row, padding) for row, padding in zip(ids.tolist(), (~real).tolist(), strict=True)]


def _some(text: TextTokens, positions: Sequence[int]) -> TextTokens:
    """These tokens of a text."""
    return TextTokens(
        [text.pieces[i] for i in positions],
        [text.continues[i] for i in positions],
        [text.padding[i] for i in positions],
        {at: text.parts[i] for at, i in enumerate(positions) if i in text.parts},
    )


def find_word(word: str, texts: Sequence[TextTokens] | None, unknown: str, text: int | None = None) -> range:
    """The positions of a word, which must be the same in every text, or those in one text of the batch."""
    if texts is None:
        raise ValueError(f"{word!r} cannot be looked up: {unknown}")
    numbers = range(len(texts)) if text is None else [text]
    spans = [span_of(word, texts, number) for number in numbers]
    other = next((i for i, span in enumerate(spans) if span != spans[0]), None)
    if other is not None:
        raise ValueError(
            f"{word!r} is at {_place(spans[0])} in text 0 and at {_place(spans[other])} in text {other}; choose one: "
            f"text=0 {'or' if len(texts) == 2 else 'to'} text={len(texts) - 1}"
        )
    return spans[0] if spans else range(0)


def span_of(word: str, texts: Sequence[TextTokens], number: int) -> range:
    """The positions of a word in one of several texts; an error says in which."""
    try:
        return texts[number].span(word)
    except ValueError as error:
        raise ValueError(f"text {number}: {error}" if len(texts) > 1 else str(error)) from None


def _place(span: range) -> str:
    return f"position {span.start}" if len(span) == 1 else f"positions {span.start} to {span.stop - 1}"

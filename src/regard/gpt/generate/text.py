"""Text at both ends of generation: prompts in any form become rows of token ids, and new ids become text that ends.

A prompt is a text, several texts, ids, or a tensor with a mask. A batch is padded on the left, so that the next token
of every row is in the same column. A text ends at an end token, before a stop string, or when it is long enough; a
stop string may arrive in pieces, so text that could be its beginning is held back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from jaxtyping import Int
from torch import Tensor

from regard.gpt.config import GPTConfig
from regard.gpt.generate.sample import check_token
from regard.support.arguments import describe_tensor

if TYPE_CHECKING:
    from regard.gpt.tokenizer.tokenizer import Tokenizer

Reason = Literal["end", "stop", "length", "context"]


@dataclass(frozen=True)
class Prompts:
    """Prompts as rows of token ids. The form of the answer depends on theirs: text or ids, one or several."""

    rows: list[list[int]]
    is_text: bool
    is_batch: bool


def read_prompts(prompt: Any, mask: Any, config: GPTConfig, tokenizer: Tokenizer | None) -> Prompts:
    """Rows of ids from a str, a list of them, ids, a list of those, or a tensor (T,) or (B, T) with its mask.

    >>> read_prompts([[5, 6], [7]], None, GPTConfig.preset("tiny"), None)
    Prompts(rows=[[5, 6], [7]], is_text=False, is_batch=True)
    """
    if mask is not None and not isinstance(prompt, Tensor):
        raise ValueError("mask says which tokens of a tensor are real; lists and texts need none, so leave it out")
    if isinstance(prompt, Tensor):
        rows, is_text, is_batch = _read_tensor(prompt, mask), False, prompt.dim() == 2
    elif isinstance(prompt, str):
        rows, is_text, is_batch = _encode([prompt], config, tokenizer), True, False
    elif not isinstance(prompt, (list, tuple)):
        raise ValueError(
            f"a prompt must be a text, token ids, or a list of either, not {type(prompt).__name__}; "
            "pass a NumPy array as torch.as_tensor(prompt)"
        )
    elif prompt and all(isinstance(part, str) for part in prompt):
        rows, is_text, is_batch = _encode(prompt, config, tokenizer), True, True
    elif _are_ids(prompt):
        rows, is_text, is_batch = [list(prompt)], False, False
    elif all(_are_ids(part) for part in prompt):
        rows, is_text, is_batch = [list(part) for part in prompt], False, True
    else:
        kinds = ", ".join(sorted({type(part).__name__ for part in prompt}))
        raise ValueError(f"a list of prompts must be all texts, all ids or all lists of ids, but holds {kinds}")
    return Prompts([_check_row(row, config) for row in rows], is_text, is_batch)


def pad_left(rows: list[list[int]]) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B"]]:
    """Rows as one tensor, padded on the left, and the length of each row's padding.

    >>> pad_left([[5, 6, 7], [8]])
    (tensor([[5, 6, 7],
            [0, 0, 8]]), tensor([0, 2]))
    """
    longest = max(map(len, rows))
    starts = [longest - len(row) for row in rows]
    return torch.tensor([[0] * n + row for n, row in zip(starts, rows, strict=True)]), torch.tensor(starts)


def _encode(texts: Sequence[str], config: GPTConfig, tokenizer: Tokenizer | None) -> list[list[int]]:
    if tokenizer is None:
        raise ValueError(
            "this model has no tokenizer to read a text with; give token ids, or set "
            "model.tokenizer = Tokenizer.load(…)"
        )
    # Some tokenizers put a special token before every text (Llama's <s>). Names of special tokens within a prompt are
    # plain text.
    prefix = tokenizer.encode("", special=True)
    prefix = prefix[:-1] if prefix and prefix[-1] in config.ends else prefix
    return [prefix + tokenizer.encode(text) for text in texts]


def _read_tensor(ids: Tensor, mask: Any) -> list[list[int]]:
    if ids.dim() not in (1, 2) or ids.is_floating_point() or ids.dtype is torch.bool:
        raise ValueError(f"ids must be whole numbers of shape (T,) or (B, T), but are {describe_tensor(ids)}")
    rows: list[list[int]] = torch.atleast_2d(ids).tolist()
    if mask is None:
        return rows
    mask = torch.as_tensor(mask)
    if mask.shape != ids.shape:
        raise ValueError(
            f"mask has shape {tuple(mask.shape)} but ids have {tuple(ids.shape)}; give True for each real token"
        )
    if mask.dtype is not torch.bool and not bool(((mask == 0) | (mask == 1)).all()):
        raise ValueError("mask must be True or 1 for a real token and False or 0 for padding, and nothing else")
    for number, is_real in enumerate(torch.atleast_2d(mask).tolist()):
        columns = [i for i, real in enumerate(is_real) if real]
        if columns and columns[-1] - columns[0] + 1 != len(columns):
            hole = next(i for i in range(columns[0], columns[-1]) if not is_real[i])
            raise ValueError(
                f"row {number} of mask has a hole at token {hole}; padding stands before a text or after it, not within"
            )
        rows[number] = [rows[number][i] for i in columns]
    return rows


def _check_row(row: list[int], config: GPTConfig) -> list[int]:
    """The row, if its ids and length are valid. An empty row becomes the end token, as after another text."""
    outside = next((i for i in row if not 0 <= i < config.vocab_size), None)
    if outside is not None:
        raise ValueError(
            f"token id {outside} is not among this model's {config.vocab_size} (0 to {config.vocab_size - 1}); "
            "was the text tokenised for another model?"
        )
    if len(row) > config.context_length:
        raise ValueError(
            f"{len(row)} tokens do not fit context_length={config.context_length}; "
            f"give a prompt of at most {config.context_length}"
        )
    if not row and not config.ends:
        raise ValueError("the prompt is empty, and this model has no end token to start from; give it a token at least")
    return row or [config.ends[0]]


def _are_ids(values: object) -> bool:
    return isinstance(values, (list, tuple)) and all(isinstance(i, int) and not isinstance(i, bool) for i in values)


def _check_stop_tokens(tokens: frozenset[int], vocab_size: int | None) -> None:
    """Stop tokens must be in the vocabulary, where its size is known."""
    outside = [] if vocab_size is None else [i for i in sorted(tokens) if not 0 <= i < vocab_size]
    if vocab_size is not None and outside:
        known = f"this model's {vocab_size} (0 to {vocab_size - 1})"
        raise ValueError(f"stop has token id {outside[0]}, which is not among {known}; it would never stop a text")


@dataclass(frozen=True)
class StopConditions:
    """What ends a text: the model's end tokens (`ends`), stop tokens or stop strings."""

    ends: tuple[int, ...] = ()
    tokens: frozenset[int] = frozenset()
    strings: tuple[str, ...] = ()

    @staticmethod
    def read(stop: Any, ends: tuple[int, ...], is_text: bool, vocab_size: int | None = None) -> StopConditions:
        r"""From a string, a token id, or several of either.

        >>> StopConditions.read("\n\n", ends=(0,), is_text=True).strings
        ('\n\n',)
        """
        several = [] if stop is None else [stop] if isinstance(stop, (str, int)) else stop
        if not isinstance(several, (list, tuple, set, frozenset)):
            raise ValueError(f"stop must be a string, a token id, or several of one kind, not {type(stop).__name__}")
        strings = tuple(s for s in several if isinstance(s, str))
        tokens = frozenset(i for i in several if _are_ids([i]))
        if len(strings) not in (0, len(several)) or (not strings and not all(i in tokens for i in several)):
            raise ValueError(f"stop ({stop!r}) must be a string, a token id, or several of one kind")
        _check_stop_tokens(tokens, vocab_size)
        if "" in strings:
            raise ValueError("stop holds an empty string, which every text begins with; leave it out")
        if strings and not is_text:
            raise ValueError(
                f"stop ({stop!r}) is text, but the prompt is token ids; give ids: model.tokenizer.encode(…)"
            )
        return StopConditions(ends, tokens, strings)


@dataclass(frozen=True)
class Continuation:
    """What `generate(…, logprobs=True)` returns for a text.

    text: the new text; None where the prompt was ids.
    ids: its tokens, without the one that ended it. Where a stop string ended it, with those of the stop string.
    logprobs: for each of `ids`, the logarithm of the probability that the model gave it, before temperature, top_k,
        top_p and min_p. Their sum is the log-likelihood of the text after its prompt.
    reason: what ended it, as in GenerationStream.
    """

    text: str | None
    ids: list[int]
    logprobs: list[float]
    reason: Reason | None


class GeneratedText:
    """A text while it is generated: takes one token after another, and returns the text that cannot change any more.

    >>> text = GeneratedText(StopConditions(ends=(0,)))
    >>> for token in (5, 6, 0, 7):
    ...     _ = text.append(token)
    >>> text.ids, text.reason
    ([5, 6], 'end')
    """

    def __init__(self, stops: StopConditions, tokenizer: Tokenizer | None = None) -> None:
        self.ids: list[int] = []  # without the token that ended it
        self.text = ""  # what is final of it; always empty without a tokenizer
        self.count = 0  # tokens received, with the one that ended it
        self.reason: Reason | None = None
        self._stops, self._held = stops, ""
        self._stream = None if tokenizer is None else tokenizer.stream()

    def append(self, token: int) -> str:
        """Add a token; returns the text that is now final, possibly none. After the end, tokens are ignored."""
        if self.reason is not None:
            return ""
        check_token(token, self.count)
        self.count += 1
        if token in self._stops.ends:
            return self.finish("end")
        if token in self._stops.tokens:
            return self.finish("stop")
        self.ids.append(token)
        return "" if self._stream is None else self._release(self._stream.feed(token))

    def finish(self, reason: Reason) -> str:
        """End the text; returns what was held back."""
        if self.reason is not None:
            return ""
        final = "" if self._stream is None else self._release(self._stream.finish())
        if self.reason is None:  # the rest of an incomplete character may have completed a stop string
            self.text, final, self._held, self.reason = self.text + self._held, final + self._held, "", reason
        return final

    def _release(self, more: str) -> str:
        """The text that is final once `more` has arrived; sets the reason if a stop string is complete."""
        held = self._held + more
        matches = [(at + len(stop), at) for stop in self._stops.strings if (at := held.find(stop)) >= 0]
        if matches:  # the first to be complete, wherever the text was split into tokens
            end, self._held, self.reason = min(matches)[1], "", "stop"
        else:
            longest = min(max(map(len, self._stops.strings), default=1) - 1, len(held))
            sizes = (n for n in range(longest, 0, -1) if any(s.startswith(held[-n:]) for s in self._stops.strings))
            end = len(held) - next(sizes, 0)
            self._held = held[end:]
        self.text += held[:end]
        return held[:end]

"""Where a text ends: at an end token, before a stop string, or when it is long enough.

A stop string may come in pieces, so text that could be its beginning is held back until it is known.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from regard.gpt.tokenizer import Tokenizer

Reason = Literal["end", "stop", "length", "context"]


@dataclass(frozen=True)
class Stops:
    """What ends a text: these tokens (`ends` are the model's own), or these strings."""

    ends: tuple[int, ...] = ()
    tokens: frozenset[int] = field(default_factory=frozenset)
    strings: tuple[str, ...] = ()

    @staticmethod
    def read(stop: Any, ends: tuple[int, ...], text: bool) -> Stops:
        r"""From a string, a token id, or several of either.

        >>> Stops.read("\n\n", ends=(0,), text=True).strings
        ('\n\n',)
        """
        several = [] if stop is None else [stop] if isinstance(stop, (str, int)) else stop
        if not isinstance(several, (list, tuple, set, frozenset)):
            raise ValueError(f"stop must be a string, a token id, or several of one kind, not {type(stop).__name__}")
        strings = tuple(s for s in several if isinstance(s, str))
        tokens = frozenset(i for i in several if isinstance(i, int) and not isinstance(i, bool))
        if len(strings) not in (0, len(several)) or (not strings and not all(i in tokens for i in several)):
            raise ValueError(f"stop ({stop!r}) must be a string, a token id, or several of one kind")
        if "" in strings:
            raise ValueError("stop holds an empty string, which every text begins with; leave it out")
        if strings and not text:
            raise ValueError(
                f"stop ({stop!r}) is text, but the prompt is token ids; give ids: model.tokenizer.encode(…)"
            )
        return Stops(ends, tokens, strings)


class Text:
    """One text as it is written: takes token after token, and gives the text that is certain to stay.

    >>> text = Text(Stops(ends=(0,)))
    >>> for token in (5, 6, 0, 7):
    ...     _ = text.take(token)
    >>> text.ids, text.reason
    ([5, 6], 'end')
    """

    def __init__(self, stops: Stops, tokenizer: Tokenizer | None = None) -> None:
        self.ids: list[int] = []  # without the token that ended it
        self.taken = 0  # with it
        self.reason: Reason | None = None
        self._stops, self._held = stops, ""
        self._stream = None if tokenizer is None else tokenizer.stream()

    def take(self, token: int) -> str:
        """One token more: the text that it makes certain, often its own, sometimes none. Once ended, nothing changes."""
        if self.reason is not None:
            return ""
        self.taken += 1
        if token in self._stops.ends:
            return self.finish("end")
        if token in self._stops.tokens:
            return self.finish("stop")
        self.ids.append(token)
        return "" if self._stream is None else self._certain(self._stream.feed(token))

    def finish(self, reason: Reason) -> str:
        """End the text; what was held back and turned out to be text."""
        if self.reason is not None:
            return ""
        certain = "" if self._stream is None else self._certain(self._stream.finish())
        if self.reason is None:  # it may have been half a letter that completed a stop string
            certain, self._held, self.reason = certain + self._held, "", reason
        return certain

    def _certain(self, more: str) -> str:
        held = self._held + more
        found = [(at + len(stop), at) for stop in self._stops.strings if (at := held.find(stop)) >= 0]
        if found:  # the one that is complete first, however the tokens were cut
            self._held, self.reason = "", "stop"
            return held[: min(found)[1]]
        keep = max((_beginning(held, stop) for stop in self._stops.strings), default=0)
        self._held = held[len(held) - keep :]
        return held[: len(held) - keep]


def _beginning(text: str, stop: str) -> int:
    """How many letters at the end of the text may be the beginning of the stop string."""
    return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0)

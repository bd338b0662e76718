"""Generation: read the prompt once, then make one token after the other.

prefill and decode are the two halves, over a cache that is set aside once. Around them: a Decoder makes tokens for a
batch of rows, generate() asks it for whole texts, and a Stream hands out one text while it is being made.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.arguments import check_whole
from regard.attention.cache import Cache
from regard.attention.masks import padding
from regard.gpt.generate.cpu_decoder import Straight
from regard.gpt.generate.prompt import read, side_by_side
from regard.gpt.generate.sample import Sampling, a_seed, choose, noises
from regard.gpt.generate.stopping import Reason, Stops, Text
from regard.gpt.generate.unmodified import looked_at
from regard.gpt.model import GPT

NO_NUMBERS = "the model's scores after the prompt are NaN; are its weights finite, and its dtype wide enough?"


def prefill(
    model: GPT, ids: Int[Tensor, "B T"], cache: Cache, starts: Int[Tensor, "B"] | None = None
) -> Float[Tensor, "B V"]:
    """Read a prompt into the cache, and score the token that comes after it.

    starts: how many pads stand before each row's text, where rows were padded on the left.
    """
    told = {"cache": cache, **_padded(ids, cache, starts)}
    if looked_at() or model._forward_hooks or model._forward_pre_hooks:
        scores: Tensor = model(ids, **told)
        return scores[:, -1]
    return model.score(model.hidden(ids, **told)[:, -1])  # the other tokens' scores would be large, and for nobody


def decode(
    model: GPT, ids: Int[Tensor, "B"], cache: Cache, starts: Int[Tensor, "B"] | None = None
) -> Float[Tensor, "B V"]:
    """Read one token more of each row into the cache, and score the next."""
    return prefill(model, ids[:, None], cache, starts)


def _padded(ids: Tensor, cache: Cache, starts: Tensor | None) -> dict[str, Any]:
    """Hide the pads, and count positions from each row's own first token."""
    if starts is None:
        return {}
    places = torch.arange(cache.length + ids.shape[1], device=ids.device) - starts[:, None]  # (B, S)
    return {"mask": padding(places >= 0), "positions": places[:, cache.length :].clamp(min=0)}


@runtime_checkable
class Decoder(Protocol):
    """Whatever makes tokens for a batch of rows."""

    stride: int  # how many tokens it likes to make before anybody looks at them

    def prefill(self, ids: Int[Tensor, "B T"], starts: Int[Tensor, "B"]) -> None:
        """Read the prompts, padded on the left by `starts` tokens."""

    def more(self, n: int) -> Int[Tensor, "n B"]:
        """The next n tokens of every row, each read before the next is made."""


class Plain:
    """A decoder for any model on any device: one token at a time, by the model itself.

    noise: (n, B), one number for each token; None where the best token is taken.
    """

    stride = 1

    def __init__(
        self, model: GPT, batch: int, capacity: int, sampling: Sampling, noise: Float[Tensor, "n B"] | None
    ) -> None:
        self.model, self.sampling = model, sampling
        self.device = model.token_embedding.weight.device
        self.cache = model.cache(batch, capacity)
        self.noise = None if noise is None else noise.to(self.device)
        self.straight = Straight(model) if Straight.fits(model, batch) else None
        self.starts: Tensor | None = None
        self.made, self.last = 0, torch.zeros(batch, dtype=torch.long, device=self.device)

    def prefill(self, ids: Int[Tensor, "B T"], starts: Int[Tensor, "B"]) -> None:
        """Read the prompts, padded on the left by `starts` tokens."""
        padded = bool(starts.any())
        self.starts = starts.to(self.device) if padded else None
        self.skipped: list[int] | None = starts.tolist() if padded else None
        self.logits = prefill(self.model, ids.to(self.device), self.cache, self.starts)
        if bool(self.logits.isnan().any()):
            raise ValueError(NO_NUMBERS)

    def more(self, n: int) -> Int[Tensor, "n B"]:
        """The next n tokens of every row. A token is read when the next is asked for: the last one never needs to be."""
        tokens = []
        for _ in range(n):
            if self.made:
                self.logits = self._read(self.last)
            noise = None if self.noise is None else self.noise[self.made]
            self.last = choose(self.logits, self.sampling, noise)
            self.made += 1
            tokens.append(self.last)
        return torch.stack(tokens)

    def _read(self, ids: Tensor) -> Tensor:
        if self.straight is not None and not looked_at():
            return self.straight(ids, self.cache, self.skipped)
        return decode(self.model, ids, self.cache, self.starts)


def decoder_for(
    model: GPT, batch: int, capacity: int, sampling: Sampling, noise: Float[Tensor, "n B"] | None
) -> Decoder:
    """The fastest decoder that can stand for this model here."""
    if model.token_embedding.weight.device.type == "cuda" and not looked_at():
        try:
            from regard.gpt.generate.gpu_decoder import graphed
        except ImportError:  # no Triton
            return Plain(model, batch, capacity, sampling, noise)
        found = graphed(model, batch, capacity, sampling, noise)
        if found is not None:
            return found
    return Plain(model, batch, capacity, sampling, noise)


def generate(
    model: GPT,
    prompt: Any,
    max_new_tokens: int = 100,
    *,
    temperature: float | int = 1.0,
    top_k: int | None = None,
    top_p: float | int | None = None,
    seed: int | None = None,
    stop: Any = None,
    mask: Any = None,
) -> Any:
    """Go on from a prompt, or from several at once; see GPT.generate."""
    check_whole(max_new_tokens=max_new_tokens)
    sampling = Sampling(temperature, top_k, top_p)
    prompts = read(prompt, mask, model.config, model.tokenizer)
    stops = Stops.read(stop, model.config.ends, prompts.text)
    rows, seed = prompts.rows, a_seed(seed)
    texts = [Text(stops, model.tokenizer if prompts.text else None) for _ in rows]
    written = [""] * len(rows)
    with torch.inference_mode(), evaluating(list(model.modules())):
        for group in _groups(rows, max_new_tokens, model.config.context_length):
            noise = None if sampling.greedy else torch.cat([noises(seed, max_new_tokens, 1, i) for i in group], dim=1)
            maker = _Maker(model, [rows[i] for i in group], max_new_tokens, sampling, noise)
            while any(texts[i].reason is None for i in group) and (columns := maker.next()):
                for column in columns:
                    for i, token in zip(group, column, strict=True):
                        written[i] += texts[i].take(token)
            for i in group:
                written[i] += texts[i].finish(maker.limited_by)
            del maker  # its memory may serve the next group
    found: list[Any] = written if prompts.text else [text.ids for text in texts]
    return found if prompts.many else found[0]


class Stream:
    """One text while it is being made: pieces of text, or token ids where the prompt was ids.

    Pieces are whole letters, and never the beginning of what turns out to be a stop string. `tokens` and `seconds`
    count on as it goes; `reason` is None until the text has ended: by "end" (the end token), "stop", "length"
    (max_new_tokens) or "context" (the model's context is full).
    """

    def __init__(
        self,
        model: GPT,
        prompt: Any,
        max_new_tokens: int = 100,
        *,
        temperature: float | int = 1.0,
        top_k: int | None = None,
        top_p: float | int | None = None,
        seed: int | None = None,
        stop: Any = None,
    ) -> None:
        check_whole(max_new_tokens=max_new_tokens)
        sampling = Sampling(temperature, top_k, top_p)
        prompts = read(prompt, None, model.config, model.tokenizer)
        if len(prompts.rows) != 1:
            raise ValueError(
                f"a stream is one text, but here are {len(prompts.rows)} prompts; use generate() for several"
            )
        stops = Stops.read(stop, model.config.ends, prompts.text)
        self.seconds, self.seed = 0.0, a_seed(seed)
        self._text = Text(stops, model.tokenizer if prompts.text else None)
        self._as_text = prompts.text
        self._modules = list(model.modules())
        noise = None if sampling.greedy else noises(self.seed, max_new_tokens)
        self._maker: _Maker | None = None
        self._begin = partial(_Maker, model, prompts.rows, max_new_tokens, sampling, noise, stride=1)

    @property
    def reason(self) -> Reason | None:
        """What ended the text; None while it goes on."""
        return self._text.reason

    @property
    def tokens(self) -> int:
        """How many tokens were made, the one that ended the text included."""
        return self._text.taken

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        """The next piece."""
        while self._text.reason is None:
            before = time.perf_counter()
            with torch.inference_mode(), evaluating(self._modules):
                self._maker = self._begin() if self._maker is None else self._maker
                columns = self._maker.next()
            self.seconds += time.perf_counter() - before
            piece = self._text.take(columns[0][0]) if columns else self._text.finish(self._maker.limited_by)
            if self._as_text and piece:
                return piece
            if not self._as_text and columns and self._text.reason is None:
                return columns[0][0]
        self._maker = None  # its memory may serve the next text
        raise StopIteration


class _Maker:
    """Tokens for rows side by side, until as many are made as were asked for, or as fit."""

    def __init__(
        self,
        model: GPT,
        rows: list[list[int]],
        most: int,
        sampling: Sampling,
        noise: Tensor | None,
        stride: int | None = None,
    ) -> None:
        longest = max(map(len, rows))
        self.left = min(most, model.config.context_length - longest)
        self.limited_by: Reason = "length" if self.left == most else "context"
        if self.left:
            self.decoder = decoder_for(model, len(rows), longest + self.left, sampling, noise)
            self.stride = self.decoder.stride if stride is None else stride
            self.decoder.prefill(*side_by_side(rows))

    def next(self) -> list[list[int]]:
        """The next tokens, a list for each step with one of every row; none where there is an end of it."""
        n = min(self.stride, self.left) if self.left else 0
        self.left -= n
        found: list[list[int]] = self.decoder.more(n).tolist() if n else []
        return found


def _groups(rows: list[list[int]], most: int, context_length: int) -> list[list[int]]:
    """Which rows go side by side: all, unless pads would take room in the context that a shorter row may still need."""
    longest = max(map(len, rows), default=0)
    if not rows or longest + most <= context_length:
        return [list(range(len(rows)))] if rows else []
    return [[i for i, row in enumerate(rows) if len(row) == size] for size in sorted({len(row) for row in rows})]


@contextmanager
def evaluating(modules: list[nn.Module]) -> Iterator[None]:
    """No dropout meanwhile; those that were training go on training afterwards."""
    training = [module for module in modules if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True

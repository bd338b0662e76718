"""Generation: read the prompt once, then compute one token after another.

`prefill` and `decode` are the two halves, over a preallocated cache. A decoder computes tokens for a batch of rows,
`generate` returns complete texts, and a GenerationStream yields one text while it is generated.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils._triton import has_triton_package

from regard.attention.cache import Cache
from regard.attention.masks import padding
from regard.gpt.generate.cpu_step import SMALL_PROMPT, SMALL_STEP, CPUStep, threads_for
from regard.gpt.generate.module_calls import needs_module_calls
from regard.gpt.generate.options import GenerateOptions, SamplingOptions, StreamOptions
from regard.gpt.generate.sample import NO_TOKEN, a_seed, choose, noises
from regard.gpt.generate.text import Continuation, GeneratedText, Reason, StopConditions, pad_left, read_prompts

if TYPE_CHECKING:
    from regard.gpt.generate.gpu_decoder import GraphDecoder
    from regard.gpt.model import GPT

AT_ONCE = 64  # tokens whose scores, one for each token of the vocabulary, log_probabilities has in memory at once


def prefill(
    model: GPT, ids: Int[Tensor, "B T"], cache: Cache, starts: Int[Tensor, "B"] | None = None
) -> Float[Tensor, "B V"]:
    """Read a prompt into the cache, and score the token that follows.

    starts: the length of each row's padding, where rows were padded on the left.
    """
    options: dict[str, Any] = {"cache": cache}
    if starts is not None:  # mask the padding, and count positions from each row's first token
        positions = torch.arange(cache.length + ids.shape[1], device=ids.device) - starts[:, None]  # (B, S)
        options |= {"mask": padding(positions >= 0), "positions": positions[:, cache.length :].clamp(min=0)}
    if needs_module_calls(model):
        scores: Tensor = model(ids, **options)
        return scores[:, -1]
    return model.score(model.hidden(ids, **options)[:, -1])  # the scores of earlier tokens would be large, and unused


def decode(
    model: GPT, ids: Int[Tensor, "B"], cache: Cache, starts: Int[Tensor, "B"] | None = None
) -> Float[Tensor, "B V"]:
    """Read one more token of each row into the cache, and score the next."""
    return prefill(model, ids[:, None], cache, starts)


@torch.inference_mode()
def log_probabilities(model: GPT, prompt: list[int], ids: list[int]) -> list[float]:
    """log p(token | prompt and the tokens before it), for each of `ids`; in float32 or wider.

    >>> from regard.gpt import GPT
    >>> _ = torch.manual_seed(5)
    >>> values = log_probabilities(GPT("tiny").eval(), [5, 6], [7, 8, 9])
    >>> [-10 < value < -7 for value in values]  # untrained: near -log 4096, which is -8.3
    [True, True, True]

    The text is read once more, as a whole. That costs far less than generating it token by token, and is the same for
    every decoder.
    """
    if not prompt:
        raise ValueError("the prompt is empty, so nothing comes before the first token; give it a token at least")
    if not ids:
        return []
    device = model.token_embedding.weight.device
    read = torch.tensor([prompt + ids[:-1]], device=device)  # nothing follows the last token
    is_called = needs_module_calls(model)
    rows = (model(read) if is_called else model.hidden(read))[0, len(prompt) - 1 :]
    values: list[float] = []
    for part, expected in zip(rows.split(AT_ONCE), torch.tensor(ids, device=device).split(AT_ONCE), strict=True):
        logits = part if is_called else model.score(part)
        wide = logits if logits.dtype is torch.float64 else logits.float()
        values += (wide.gather(-1, expected[:, None])[:, 0] - wide.logsumexp(-1)).tolist()
    return values


class EagerDecoder:
    """The next tokens of a batch of rows, for any model on any device: one at a time, by the modules or by CPUStep.

    noise: (n, B), one number for each token; None if sampling is greedy.
    """

    tokens_per_call = 1  # the n for which `next_tokens` is fastest

    def __init__(
        self, model: GPT, batch: int, capacity: int, sampling: SamplingOptions, noise: Float[Tensor, "n B"] | None
    ) -> None:
        self.model, self.sampling = model, sampling
        self.device = model.token_embedding.weight.device
        self.cache = model.cache(batch, capacity)
        self.noise = None if noise is None else noise.to(self.device)
        self.weights = sum(p.numel() for p in model.parameters())
        with threads_for(batch * self.weights, SMALL_STEP):  # it splits its products by the number of threads
            self.cpu_step = CPUStep(model) if CPUStep.supports(model, batch) else None
        self.count, self.last = 0, torch.zeros(batch, dtype=torch.long, device=self.device)

    def prefill(self, ids: Int[Tensor, "B T"], starts: Int[Tensor, "B"]) -> None:
        """Read the prompts, padded on the left by `starts` tokens."""
        self.starts = starts.to(self.device) if bool(starts.any()) else None
        with threads_for(ids.numel() * self.weights, SMALL_PROMPT):
            self.logits = prefill(self.model, ids.to(self.device), self.cache, self.starts)

    def next_tokens(self, n: int) -> Int[Tensor, "n B"]:
        """The next n tokens of every row. A token is read when the next is requested, so the last one never is.

        NO_TOKEN takes the place of a token where the scores are NaN or infinite.
        """
        with threads_for(len(self.last) * self.weights, SMALL_STEP):
            return torch.stack([self._next() for _ in range(n)])

    def _next(self) -> Tensor:
        if self.count and self.cpu_step is not None and not needs_module_calls():
            starts = None if self.starts is None else self.starts.tolist()
            self.logits = self.cpu_step(self.last, self.cache, starts)
        elif self.count:
            self.logits = decode(self.model, self.last, self.cache, self.starts)
        noise = None if self.noise is None else self.noise[self.count]
        best = self.logits.amax(-1)
        self.last = choose(self.logits, self.sampling, noise, best)
        self.count += 1
        return torch.where(best.float().isfinite(), self.last, NO_TOKEN)


def decoder_for(
    model: GPT, batch: int, capacity: int, sampling: SamplingOptions, noise: Float[Tensor, "n B"] | None
) -> EagerDecoder | GraphDecoder:
    """The fastest decoder that supports this model on its device."""
    decoder = None
    if model.token_embedding.weight.is_cuda and has_triton_package() and not needs_module_calls():
        from regard.gpt.generate.gpu_decoder import graph_decoder_for

        decoder = graph_decoder_for(model, batch, capacity, sampling, noise)
    return decoder or EagerDecoder(model, batch, capacity, sampling, noise)


def generate(model: GPT, prompt: Any, options: GenerateOptions) -> Any:
    """Continue one prompt or several; see GPT.generate."""
    prompts = read_prompts(prompt, options.mask, model.config, model.tokenizer)
    stops = StopConditions.read(options.stop, model.config.ends, prompts.is_text, model.config.vocab_size)
    rows = [row for row in prompts.rows for _ in range(options.samples or 1)]
    texts = [GeneratedText(stops, model.tokenizer if prompts.is_text else None) for _ in rows]
    options = replace(options, seed=a_seed(options.seed))
    with torch.inference_mode(), eval_mode(list(model.modules())):
        for group in _groups(rows, options.max_new_tokens, model.config.context_length):
            _generate_group(model, rows, texts, group, options)
        results: list[Any] = [text.text if prompts.is_text else text.ids for text in texts]
        if options.logprobs:
            for i, (row, text) in enumerate(zip(rows, texts, strict=True)):
                logprobs = log_probabilities(model, row, text.ids)
                results[i] = Continuation(text.text if prompts.is_text else None, text.ids, logprobs, text.reason)
    if (samples := options.samples) is not None:
        results = [results[i : i + samples] for i in range(0, len(results), samples)]
    return results if prompts.is_batch else results[0]


def _generate_group(
    model: GPT, rows: list[list[int]], texts: list[GeneratedText], group: list[int], options: StreamOptions
) -> None:
    """Continue the rows of a group as one batch; their texts receive the tokens."""
    generation = _Generation(model, rows, group, options)
    while any(texts[i].reason is None for i in group) and (columns := generation.next()):
        for column in columns:
            for i, token in zip(group, column, strict=True):
                texts[i].append(token)
    for i in group:
        texts[i].finish(generation.limit)


class GenerationStream:
    """Iterates over one text while it is generated: pieces of text, or token ids if the prompt was ids.

    Pieces are complete characters, and never the beginning of a stop string. `tokens` and `seconds` count up during
    generation; `reason` is None until the text has ended: by "end" (the end token), "stop", "length" (max_new_tokens)
    or "context" (the model's context is full).
    """

    def __init__(self, model: GPT, prompt: Any, options: StreamOptions) -> None:
        prompts = read_prompts(prompt, None, model.config, model.tokenizer)
        if (count := len(prompts.rows)) != 1:
            raise ValueError(f"a stream is one text, but here are {count} prompts; use generate() for several")
        stops = StopConditions.read(options.stop, model.config.ends, prompts.is_text, model.config.vocab_size)
        self.seconds, self.seed = 0.0, a_seed(options.seed)
        self._text = GeneratedText(stops, model.tokenizer if prompts.is_text else None)
        self._is_text = prompts.is_text
        self._modules = list(model.modules())
        self._generation: _Generation | None = None
        self._begin = partial(_Generation, model, prompts.rows, [0], replace(options, seed=self.seed), 1)

    @property
    def reason(self) -> Reason | None:
        """What ended the text; None until then."""
        return self._text.reason

    @property
    def tokens(self) -> int:
        """How many tokens were generated, including the one that ended the text."""
        return self._text.count

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        """The next piece."""
        while self._text.reason is None:
            before = time.perf_counter()
            with torch.inference_mode(), eval_mode(self._modules):
                self._generation = self._begin() if self._generation is None else self._generation
                columns = self._generation.next()
            self.seconds += time.perf_counter() - before
            piece = self._text.append(columns[0][0]) if columns else self._text.finish(self._generation.limit)
            if self._is_text and piece:
                return piece
            if not self._is_text and columns and self._text.reason is None:
                return columns[0][0]
        self._generation = None  # the next text may reuse its memory
        raise StopIteration


class _Generation:
    """Tokens for some of the rows, those of a group, up to a number of tokens or the end of the context."""

    def __init__(
        self, model: GPT, rows: list[list[int]], group: list[int], options: StreamOptions, tokens_per_call: int = 0
    ) -> None:
        batch, n, sampling = [rows[i] for i in group], options.max_new_tokens, options.sampling
        longest = max(map(len, batch))
        # The last token is chosen but never read, so it needs no place in the context.
        self.remaining = min(n, model.config.context_length - longest + 1)
        self.limit: Reason = "length" if self.remaining == n else "context"
        noise = None if sampling.greedy else torch.cat([noises(options.seed, n, 1, i) for i in group], dim=1)
        self.decoder = decoder_for(model, len(batch), longest + self.remaining, sampling, noise)
        self.tokens_per_call = tokens_per_call or self.decoder.tokens_per_call
        self.decoder.prefill(*pad_left(batch))

    def next(self) -> list[list[int]]:
        """The next tokens: for each step a list with one token per row; empty at the limit."""
        if not self.remaining:
            return []
        n = min(self.tokens_per_call, self.remaining)
        self.remaining -= n
        columns: list[list[int]] = self.decoder.next_tokens(n).tolist()
        return columns


def _groups(rows: list[list[int]], max_new_tokens: int, context_length: int) -> list[list[int]]:
    """The rows of each batch: all in one, unless a short row would lose context to the padding before it."""
    longest = max(map(len, rows), default=0)
    if not rows or longest + max_new_tokens - 1 <= context_length:
        return [list(range(len(rows)))] if rows else []
    return [[i for i, row in enumerate(rows) if len(row) == size] for size in sorted({len(row) for row in rows})]


@contextmanager
def eval_mode(modules: list[nn.Module]) -> Iterator[None]:
    """Switch dropout off, and restore each module's mode afterwards."""
    training = [module for module in modules if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True

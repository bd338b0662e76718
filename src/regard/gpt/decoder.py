"""Graphed: generation on a GPU, recorded once and played again for every token.

Without a recording, a token of a small model costs thirty times as long in Python as on the GPU. The recordings, the
cache and the other memory are kept with the model, for the next text of the same size; they are made anew where the
model's weights have moved.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.gpt.model import GPT
from regard.gpt.one_token import OneToken
from regard.gpt.sample import Sampling, choose
from regard.masks import padding

PROMPTS = 64  # prompts are padded to a multiple of so many tokens, so that one recording serves several lengths
ROOM = 256  # and the cache to a multiple of so many


class Graphed:
    """Tokens for a batch of texts, on a GPU; see regard.gpt.generate.Decoder."""

    stride = 16

    def __init__(
        self, model: GPT, batch: int, capacity: int, sampling: Sampling, noise: Float[Tensor, "n B"] | None
    ) -> None:
        # The prompt may take up to PROMPTS more places than it has tokens.
        self.recording = recording_for(model, batch, -(-(capacity + PROMPTS) // ROOM) * ROOM, sampling)
        self.noise, self.given = noise, 0

    def prefill(self, ids: Int[Tensor, "B T"], starts: Int[Tensor, "B"]) -> None:
        """Read the prompts, padded on the left by `starts` tokens; and choose the first token of each."""
        self.recording.begin(ids, starts, self.noise)

    def more(self, n: int) -> Int[Tensor, "n B"]:
        """The next n tokens of every row."""
        end = self.given + n
        while self.recording.made < end:
            self.recording.one_more()
        tokens = self.recording.token.tokens[self.given : end].cpu()
        self.given = end
        return tokens


def recording_for(model: GPT, batch: int, capacity: int, sampling: Sampling) -> Recording:
    """The recording that was kept for such texts, or a new one in its place."""
    # Weights may change under a recording, but not move.
    key = (batch, capacity, sampling, *(p.data_ptr() for p in model.parameters()))
    kept: Kept = model.__dict__.setdefault("_recorded", Kept())
    if kept.recording is None or kept.key != key:
        kept.recording = None  # its memory is free before the next one asks for some
        kept.recording, kept.key = Recording(model, batch, capacity, sampling), key
    return kept.recording


@dataclass
class Kept:
    """A model's recording. A copy of the model begins without one: it has weights of its own."""

    recording: Recording | None = None
    key: tuple[Any, ...] = ()

    def __deepcopy__(self, memo: dict[int, Any]) -> Kept:
        return Kept()

    def __reduce__(self) -> tuple[type[Kept], tuple[()]]:
        return Kept, ()


class Recording:
    """One model, one batch size, one cache: a recorded prefill for each length of prompt, and a recorded step."""

    def __init__(self, model: GPT, batch: int, capacity: int, sampling: Sampling) -> None:
        self.model, self.sampling = model, sampling
        self.token = OneToken(model, batch, capacity, greedy=sampling.greedy)
        device = self.token.x.device
        self.noise = torch.zeros(capacity + 1, batch, device=device)
        self.made = 0
        self.prompts: dict[int, tuple[torch.cuda.CUDAGraph, Tensor]] = {}
        self.step: torch.cuda.CUDAGraph | None = None
        self.pool = torch.cuda.graph_pool_handle()

    @torch.no_grad()
    def begin(self, ids: Tensor, starts: Tensor, noise: Tensor | None) -> None:
        """Read the prompts and choose the first token."""
        T = ids.shape[1]
        length = min(-(-T // PROMPTS) * PROMPTS, self.model.config.context_length)
        token, extra = self.token, length - T
        token.start.copy_(starts.to(token.start) + extra, non_blocking=True)
        if noise is not None:
            self.noise[: len(noise)].copy_(noise, non_blocking=True)
        token.slot.fill_(length - 1)
        token.step.zero_()
        if length not in self.prompts:
            prompt = ids.new_zeros(len(ids), length, device=token.x.device)
            self.prompts[length] = self._record(lambda: self._read(prompt)), prompt
        graph, prompt = self.prompts[length]
        prompt[:, extra:].copy_(ids, non_blocking=True)
        if extra:
            prompt[:, :extra].zero_()
        token.slot.fill_(length - 1)
        token.step.zero_()
        graph.replay()
        self.made = 1

    @torch.no_grad()
    def one_more(self) -> None:
        """Make the next token of every row."""
        if self.step is None:
            before = [t.clone() for t in (self.token.step, self.token.slot, self.token.x, self.token.ids)]
            self.step = self._record(self._step)
            for t, was in zip((self.token.step, self.token.slot, self.token.x, self.token.ids), before, strict=True):
                t.copy_(was)
        self.step.replay()
        self.made += 1

    def _read(self, ids: Tensor) -> None:
        token = self.token
        places = torch.arange(ids.shape[1], device=ids.device)
        real = places >= token.start[:, None]
        positions = (places - token.start[:, None]).clamp(min=0)
        token.cache.reset()
        hidden = self.model.hidden(ids, mask=padding(real), cache=token.cache, positions=positions)
        self._choose(self.model.score(hidden[:, -1]).float())
        token.take(picked=True)

    def _step(self) -> None:
        self.token.run()
        if not self.sampling.greedy:
            self._choose(self.token.logits)
        self.token.take(picked=not self.sampling.greedy)

    def _choose(self, logits: Tensor) -> None:
        noise = self.noise.index_select(0, self.token.step[:1])[0]
        self.token.ids.copy_(choose(logits, self.sampling, noise))

    def _record(self, run: Callable[[], None]) -> torch.cuda.CUDAGraph:
        """Run once to warm up, then record."""
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            run()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool):
            run()
        return graph

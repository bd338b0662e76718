"""Graphed: generation on a GPU, recorded once and played again for every token.

Without a recording, a token of a small model costs thirty times as long in Python as on the GPU. The recordings, the
cache and the other memory are kept with the model, for the next text of the same size; they are made anew where the
model's weights have moved, or where another text still needs them.
"""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor
from triton.errors import TritonError

from regard.attention.masks import padding
from regard.gpt.config import GPTConfig
from regard.gpt.generate.generate import NO_NUMBERS
from regard.gpt.generate.gpu_step import OneToken, fits
from regard.gpt.generate.sample import Sampling, choose
from regard.gpt.generate.unmodified import look
from regard.gpt.model import GPT

PROMPTS = 64  # prompts are padded to a multiple of so many tokens, so that one recording serves several lengths
ROOM = 256  # and the cache to a multiple of so many

_one_at_a_time = threading.RLock()  # torch records on one stream
_refused: set[tuple[Any, ...]] = set()  # models and batches that no programs can be built for


def graphed(
    model: GPT, batch: int, capacity: int, sampling: Sampling, noise: Float[Tensor, "n B"] | None
) -> Graphed | None:
    """A decoder by recordings; or None, where none can stand for the model on this GPU."""
    weight = model.token_embedding.weight
    what = (weight.device, weight.dtype, model.config, batch)
    if what in _refused or torch.is_autocast_enabled(weight.device.type):
        return None
    seen = look(model)
    if not _known(model, batch, seen) and not fits(model, batch):
        return None
    try:
        return Graphed(model, batch, capacity, sampling, noise, seen)
    except TritonError as error:
        warnings.warn(
            f"regard's programs cannot be built for this GPU, model and batch of {batch} ({type(error).__name__}); "
            "generation goes on by torch's operations, more slowly",
            stacklevel=2,
        )
        _refused.add(what)
        return None


def _known(model: GPT, batch: int, seen: list[object]) -> bool:
    """Is there a recording for such a batch, and is the model as it was then? So it fits as it did."""
    kept = _kept.get(model)
    return kept is not None and kept.key[0] == batch and kept.seen == seen


class Graphed:
    """Tokens for a batch of texts, on a GPU; see regard.gpt.generate.Decoder."""

    stride = 16

    def __init__(
        self,
        model: GPT,
        batch: int,
        capacity: int,
        sampling: Sampling,
        noise: Float[Tensor, "n B"] | None,
        seen: list[object],
    ) -> None:
        if noise is None and not sampling.greedy:
            raise ValueError(f"{sampling} needs noise, a number from 0 to 1 for each token; see noises()")
        self.model, self.capacity, self.noise = model, capacity, noise
        # A recording reads the weights where they lay: should they move meanwhile, they are kept until the text is done.
        self.weights = [p.data for p in model.parameters()]
        # The prompt may take up to PROMPTS more places than it has tokens.
        room = -(-(capacity + PROMPTS) // ROOM) * ROOM
        self.recording = recording_for(self, model, (batch, room, sampling, model.config), seen)

    def prefill(self, ids: Int[Tensor, "B T"], starts: Int[Tensor, "B"]) -> None:
        """Read the prompts, padded on the left by `starts` tokens; and choose the first token of each."""
        T = ids.shape[1]
        if self.capacity < T:
            raise ValueError(f"a prompt of {T} tokens does not fit; build the decoder with capacity={T + 1} or more")
        self.prompt, self.given = T, 0
        self.most = self.capacity - T if self.noise is None else min(self.capacity - T, len(self.noise))
        self.recording.begin(ids, starts, self.noise)

    def more(self, n: int) -> Int[Tensor, "n B"]:
        """The next n tokens of every row."""
        end = self.given + n
        if end > self.most:  # nobody on the GPU would notice
            raise ValueError(
                f"{end} tokens were asked for, but this decoder can make {self.most} after a prompt of {self.prompt}; "
                "build it with more capacity, and noise for each"
            )
        recording = self.recording
        recording.until(end)
        tokens = Fetched(recording.token.tokens[self.given : end])
        broken = None if self.given else Fetched(recording.broken)
        recording.until(min(end + n, self.most))  # the GPU goes on while somebody looks at these
        found = tokens.wait()
        if broken is not None and bool(broken.wait()):
            raise ValueError(NO_NUMBERS)
        self.given = end
        if end == self.most:
            recording.user = None
        return found


class Fetched:
    """A tensor on its way from the GPU. What is asked of the GPU afterwards does not delay it."""

    def __init__(self, of: Tensor) -> None:
        self.copy = torch.empty(of.shape, dtype=of.dtype, pin_memory=of.is_cuda)
        self.copy.copy_(of, non_blocking=True)
        self.there = torch.cuda.current_stream(of.device).record_event() if of.is_cuda else None

    def wait(self) -> Tensor:
        """The tensor, once it is there."""
        if self.there is not None:
            self.there.synchronize()
        return self.copy


def recording_for(
    user: Graphed, model: GPT, key: tuple[int, int, Sampling, GPTConfig], seen: list[object]
) -> Recording:
    """The recording that was kept for such texts, if nobody else is at it; or a new one in its place."""
    with _one_at_a_time:
        kept = _kept.get(model)
        # Weights may change under a recording, but not move.
        if kept is None or kept.key != key or kept.recording.taken or kept.seen != seen:
            kept = None
            _kept.pop(model, None)  # its memory is free before the next one asks for some
            # The recording goes with its model; were the model held by it, its memory would outlive the last use of it.
            kept = _kept[model] = Kept(Recording(cast(GPT, weakref.proxy(model)), *key[:3]), key, seen)
        kept.recording.user = weakref.ref(user)
        return kept.recording


@dataclass
class Kept:
    """A model's recording, and what the model looked like then."""

    recording: Recording
    key: tuple[int, int, Sampling, GPTConfig]
    seen: list[object]


_kept: weakref.WeakKeyDictionary[GPT, Kept] = weakref.WeakKeyDictionary()


class Recording:
    """One model, one batch size, one cache: a recorded prefill for each length of prompt, and a recorded step."""

    last: torch.cuda.Event | None = None  # after all that was asked of the GPU

    # Memory that is made in inference mode could only be written to in inference mode; this serves everybody.
    @torch.inference_mode(False)
    @torch.no_grad()
    def __init__(self, model: GPT, batch: int, capacity: int, sampling: Sampling) -> None:
        self.model, self.sampling = model, sampling
        self.token = OneToken(model, batch, capacity, greedy=sampling.greedy)
        device = self.token.x.device
        self.noise = torch.zeros(capacity + 1, batch, device=device)
        self.broken = torch.zeros((), dtype=torch.bool, device=device)
        self.made = 0
        self.user: weakref.ref[Graphed] | None = None
        self.prompts: dict[int, tuple[Tensor, torch.cuda.CUDAGraph]] = {}
        self.step: torch.cuda.CUDAGraph | None = None
        self.pool: Any = None
        # Every program is built now, so that one that cannot be is known before a text begins.
        with torch.cuda.device_of(self.token.x):
            self.token.take(picked=True)
            self.token.run()
            self.token.take(picked=not sampling.greedy)

    @property
    def taken(self) -> bool:
        """Is a text that was begun here still being made?"""
        return self.user is not None and self.user() is not None

    @torch.no_grad()
    def begin(self, ids: Int[Tensor, "B T"], starts: Int[Tensor, "B"], noise: Float[Tensor, "n B"] | None) -> None:
        """Read the prompts and choose the first token."""
        T = ids.shape[1]
        length = min(-(-T // PROMPTS) * PROMPTS, self.model.config.context_length)
        token, extra = self.token, length - T
        self._follow()
        token.start.copy_(starts.to(token.start) + extra)
        token.slot.fill_(length - 1)
        token.step.zero_()
        if noise is not None:
            n = min(len(noise), len(self.noise))  # more tokens may be wished for than there is room for
            self.noise[:n].copy_(noise[:n], non_blocking=True)
        known = self.prompts.get(length)
        if known is None:
            with torch.inference_mode(False):
                prompt = torch.zeros(len(ids), length, dtype=torch.long, device=token.x.device)
        else:
            prompt = known[0]
        prompt[:, extra:].copy_(ids, non_blocking=True)  # what stands before it is hidden
        if known is None:
            self.prompts[length] = prompt, self._record(partial(self._read, prompt))
        else:
            known[1].replay()
        self.made = 1
        self._mark()

    @torch.no_grad()
    def until(self, n: int) -> None:
        """Make tokens until there are n in every row."""
        self._follow()
        while self.made < n:
            if self.step is None:
                self.step = self._record(self._step)
            else:
                self.step.replay()
            self.made += 1
        self._mark()

    def _follow(self) -> None:
        """What comes now comes after all that was asked before, be it on another stream."""
        if self.last is not None:
            torch.cuda.current_stream(self.token.x.device).wait_event(self.last)

    def _mark(self) -> None:
        if self.token.x.is_cuda:
            self.last = torch.cuda.current_stream(self.token.x.device).record_event()

    def __del__(self) -> None:
        """Its memory is free for others once nothing is played in it any more."""
        with suppress(RuntimeError):  # when all of Python ends, the GPU may be gone
            if self.last is not None and not torch.cuda.is_current_stream_capturing():
                self.last.synchronize()

    def _read(self, ids: Tensor) -> None:
        token = self.token
        places = torch.arange(ids.shape[1], device=ids.device)
        real = places >= token.start[:, None]
        positions = (places - token.start[:, None]).clamp(min=0)
        token.cache.reset()
        hidden = self.model.hidden(ids, mask=padding(real), cache=token.cache, positions=positions)
        logits = self.model.score(hidden[:, -1]).float()
        self.broken.copy_(logits.isnan().any())
        self._choose(logits)
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
        """Run for this time, and record it for the next: while it is recorded, nothing is computed."""
        with _one_at_a_time, torch.cuda.device_of(self.token.x):
            run()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"):
                run()
            self.pool = graph.pool()
        return graph

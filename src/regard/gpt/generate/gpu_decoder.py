"""Generation on a GPU: the steps are captured once as CUDA graphs and replayed for every token.

Without graphs, a token of a small model takes thirty times as long in Python as on the GPU. The graphs, the key/value
cache and the other buffers are kept with the model for the next text of the same size; they are captured again if the
model's weights have moved in memory, or while another text still uses them.
"""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor
from triton.errors import TritonError

from regard.attention.masks import padding
from regard.gpt.generate.gpu_step import GPUStep, supports
from regard.gpt.generate.module_calls import model_fingerprint
from regard.gpt.generate.options import SamplingOptions
from regard.gpt.generate.sample import choose

if TYPE_CHECKING:
    from regard.gpt.model import GPT

PROMPT_MULTIPLE = 64  # prompts are padded to a multiple of this, so that one graph serves several lengths
CAPACITY_MULTIPLE = 256  # and the cache to a multiple of this

_capture_lock = threading.RLock()  # torch captures on one stream
_kept: weakref.WeakKeyDictionary[GPT, CapturedGraphs] = weakref.WeakKeyDictionary()
_unsupported: set[tuple[Any, ...]] = set()  # models and batch sizes whose kernels do not compile


def graph_decoder_for(
    model: GPT, batch: int, capacity: int, sampling: SamplingOptions, noise: Float[Tensor, "n B"] | None
) -> GraphDecoder | None:
    """A decoder that replays CUDA graphs; None where its kernels do not support the model or this GPU."""
    if noise is None and not sampling.greedy:
        raise ValueError(f"{sampling} needs noise, a number from 0 to 1 for each token; see noises()")
    weight = model.token_embedding.weight
    case = (weight.device, weight.dtype, model.config, batch)
    if case in _unsupported or torch.is_autocast_enabled(weight.device.type):
        return None
    # Padding may make the prompt up to PROMPT_MULTIPLE tokens longer.
    padded = -(-(capacity + PROMPT_MULTIPLE) // CAPACITY_MULTIPLE) * CAPACITY_MULTIPLE
    try:
        with _capture_lock:
            graphs = _graphs_for(model, (batch, padded, sampling))
            return None if graphs is None else GraphDecoder(model, graphs, capacity, noise)
    except TritonError as error:
        warnings.warn(
            f"regard's kernels cannot be compiled for this GPU, model and batch of {batch} ({type(error).__name__}); "
            "generation continues with torch's operations, more slowly",
            stacklevel=2,
        )
        _unsupported.add(case)
        return None


def _graphs_for(model: GPT, key: tuple[int, int, SamplingOptions]) -> CapturedGraphs | None:
    """The graphs kept with the model, if they match and no other text uses them; otherwise new ones in their place."""
    state, graphs = model_fingerprint(model), _kept.get(model)
    if graphs is not None and (graphs.key, graphs.state) == (key, state) and not (graphs.user and graphs.user()):
        return graphs
    if not supports(model, key[0]):
        return None
    graphs = None
    _kept.pop(model, None)  # free the old buffers before allocating new ones
    # The graphs are freed with their model, so they must not keep it alive.
    graphs = _kept[model] = CapturedGraphs(cast("GPT", weakref.proxy(model)), key, state)
    return graphs


class GraphDecoder:
    """Tokens for a batch of texts on a GPU."""

    tokens_per_call = 16

    def __init__(self, model: GPT, graphs: CapturedGraphs, capacity: int, noise: Float[Tensor, "n B"] | None) -> None:
        self.model, self.graphs, self.capacity, self.noise = model, graphs, capacity, noise
        graphs.user = weakref.ref(self)
        # Graphs read weights at fixed addresses: if weights move during this text, the old ones must stay allocated.
        self.weights = [p.data for p in model.parameters()]

    def prefill(self, ids: Int[Tensor, "B T"], starts: Int[Tensor, "B"]) -> None:
        """Read the prompts, padded on the left by `starts` tokens, and choose the first token of each row."""
        T = ids.shape[1]
        if self.capacity < T:
            raise ValueError(f"a prompt of {T} tokens does not fit; build the decoder with capacity={T + 1} or more")
        self.prompt_length, self.returned = T, 0
        self.limit = self.capacity - T if self.noise is None else min(self.capacity - T, len(self.noise))
        self.graphs.begin(ids, starts, self.noise)

    def next_tokens(self, n: int) -> Int[Tensor, "n B"]:
        """The next n tokens of every row."""
        end = self.returned + n
        if end > self.limit:  # the kernels check no bounds
            raise ValueError(
                f"{end} tokens were asked for, but this decoder can make {self.limit} after a prompt of "
                f"{self.prompt_length}; build it with more capacity, and noise for each"
            )
        graphs = self.graphs
        graphs.run_until(end)
        source = graphs.step.tokens[self.returned : end]
        tokens = torch.empty(source.shape, dtype=source.dtype, pin_memory=source.is_cuda)
        tokens.copy_(source, non_blocking=True)
        copied = graphs.record_event()
        graphs.run_until(min(end + n, self.limit))  # the GPU computes the next ones while the host handles these
        if copied is not None:
            copied.synchronize()
        self.returned = end
        if end == self.limit:
            graphs.user = None
        return tokens


class CapturedGraphs:
    """CUDA graphs for one model, batch size and cache: one prefill for each prompt length, and one decoding step.

    key: what they are captured for: batch size, capacity and sampling.
    state: the model's fingerprint at that time: values of weights may change under a graph, but not their addresses.
    """

    last_event: torch.cuda.Event | None = None  # after all GPU work so far

    # Tensors made in inference mode cannot be written to outside it; these buffers are used in every mode.
    @torch.inference_mode(False)
    @torch.no_grad()
    def __init__(self, model: GPT, key: tuple[int, int, SamplingOptions], state: list[object]) -> None:
        self.model, self.key, self.state = model, key, state
        batch, capacity, self.sampling = key
        self.step = GPUStep(model, batch, capacity, greedy=self.sampling.greedy)
        self.noise = torch.zeros(capacity + 1, batch, device=self.step.x.device)
        self.count = 0  # tokens computed so far, of each row
        self.user: weakref.ref[GraphDecoder] | None = None  # the decoder whose text they generate now
        self.prefills: dict[int, tuple[Tensor, torch.cuda.CUDAGraph]] = {}
        self.decode: torch.cuda.CUDAGraph | None = None
        self.pool: Any = None
        # Compile all kernels now, so that a compile error comes before the text begins.
        with torch.cuda.device_of(self.step.x):
            self.step.embed_next(chosen=True)
            self.step.score()
            self.step.embed_next(chosen=not self.sampling.greedy)

    @torch.no_grad()
    def begin(self, ids: Int[Tensor, "B T"], starts: Int[Tensor, "B"], noise: Float[Tensor, "n B"] | None) -> None:
        """Read the prompts and choose the first token of each row."""
        T = ids.shape[1]
        length = min(-(-T // PROMPT_MULTIPLE) * PROMPT_MULTIPLE, self.model.config.context_length)
        step, extra = self.step, length - T
        self._wait_for_earlier_work()
        step.start.copy_(starts.to(step.start) + extra)
        step.slot.fill_(length - 1)
        step.step.zero_()
        if noise is not None:
            n = min(len(noise), len(self.noise))  # more tokens may be requested than fit
            self.noise[:n].copy_(noise[:n], non_blocking=True)
        prompt, graph = self.prefills.get(length, (None, None))
        if prompt is None:
            with torch.inference_mode(False):
                prompt = torch.zeros(len(ids), length, dtype=torch.long, device=step.x.device)
        prompt[:, extra:].copy_(ids, non_blocking=True)  # the padding before it is masked
        if graph is not None:
            graph.replay()
        else:
            self.prefills[length] = prompt, self._capture(partial(self._prefill, prompt))
        self.count = 1
        self.record_event()

    @torch.no_grad()
    def run_until(self, n: int) -> None:
        """Compute tokens until there are n in every row."""
        self._wait_for_earlier_work()
        while self.count < n:
            if self.decode is None:
                self.decode = self._capture(self._decode)
            else:
                self.decode.replay()
            self.count += 1
        self.record_event()

    def _wait_for_earlier_work(self) -> None:
        """Order what follows after all earlier work, which may be on another stream."""
        if self.last_event is not None:
            torch.cuda.current_stream(self.step.x.device).wait_event(self.last_event)

    def record_event(self) -> torch.cuda.Event | None:
        """Mark the end of the GPU work so far."""
        if self.step.x.is_cuda:
            self.last_event = torch.cuda.current_stream(self.step.x.device).record_event()
        return self.last_event

    def __del__(self) -> None:
        """Free the buffers only when no graph runs in them any more."""
        with suppress(RuntimeError):  # at interpreter exit, the CUDA context may be gone
            if self.last_event is not None and not torch.cuda.is_current_stream_capturing():
                self.last_event.synchronize()

    def _prefill(self, ids: Tensor) -> None:
        step = self.step
        positions = torch.arange(ids.shape[1], device=ids.device) - step.start[:, None]  # negative in the padding
        step.cache.reset()
        mask = padding(positions >= 0)
        hidden = self.model.hidden(ids, mask=mask, cache=step.cache, positions=positions.clamp(min=0))
        logits = self.model.score(hidden[:, -1]).float()
        step.embed_next(chosen=True, best=self._choose(logits))

    def _decode(self) -> None:
        self.step.score()
        if self.sampling.greedy:
            self.step.embed_next(chosen=False)
        else:
            self.step.embed_next(chosen=True, best=self._choose(self.step.logits))

    def _choose(self, logits: Tensor) -> Tensor:
        """Choose the next token of each row; returns their best scores."""
        best = logits.amax(-1)
        noise = self.noise.index_select(0, self.step.step[:1])[0]
        self.step.ids.copy_(choose(logits, self.sampling, noise, best))
        return best

    def _capture(self, run: Callable[[], None]) -> torch.cuda.CUDAGraph:
        """Run once, and capture the same for later: nothing is computed during a capture."""
        with _capture_lock, torch.cuda.device_of(self.step.x):
            run()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"):
                run()
            self.pool = graph.pool()
        return graph

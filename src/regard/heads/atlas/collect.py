"""atlas: read a corpus with a model and add up what every head does, one batch after the other."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn

from regard.heads.atlas.cells import RowTokens, TokenClasses, row_tokens
from regard.heads.atlas.reservoir import Reservoir
from regard.heads.atlas.result import LEAST_TEXTS, Atlas
from regard.heads.atlas.sums import LayerAtlas, Sums, sums_of
from regard.heads.change.effect import effect as run_effect
from regard.heads.inputs.pieces import reader_of
from regard.heads.measure.registry import AVERAGED
from regard.heads.probe import SCORES, evaluating, frugal_options
from regard.heads.probe import probe as run_probe
from regard.heads.report.record import Record
from regard.heads.report.views import basis_of
from regard.heads.watch import watch
from regard.support.super_init import check_initialised

Batch = str | Tensor | Sequence[Any] | Mapping[str, Any]
_IN_CACHE, _TOGETHER = 1 << 14, 1 << 22  # rows of heads that are added together, on a CPU and on a GPU
_SAMPLED = 64  # values of each parameter that make the fingerprint of a model


def atlas(
    model: nn.Module,
    batches: Iterable[Batch],
    *,
    tokenizer: Any = None,
    start: Atlas | None = None,
    probe: bool | Mapping[str, Any] = False,
    effect: Sequence[Any] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Atlas:
    """Add up what every head does over a corpus: means, quantiles, jobs, and examples.

    >>> import regard
    >>> model = regard.GPT.from_pretrained("tiny")
    >>> one = regard.atlas(model, ["Alice saw the cat, and the cat saw Alice, and Alice saw the cat."])
    >>> one[0, 2].role.name, len(one), one.texts
    ('previous token', 6, 1)
    >>> more = regard.atlas(model, ["The cat sat on the mat, and the cat sat on the rat."])
    >>> (one + more).texts
    2

    batches: what the model is called with, one batch after the other: token ids, (B, T); what it takes by name,
        {"input_ids": …, "attention_mask": …}; a tuple of arguments; or a string, which the tokenizer reads.
    tokenizer: reads token ids as texts, for examples and for classes of tokens. [default: model.tokenizer, if any]
    start: an atlas of the same model, to which this corpus is added.
    probe: measure what regard.probe says of each head, too; for causal language models. Or options of it, such as
        {"texts": 8, "length": 16}: from eight texts on, a score has a standard error.
    effect: a few texts, in which it is measured what the absence of each head costs, as by regard.effect.
    progress: called after each batch with how many texts and tokens were read.

    The model runs in eval mode, without gradients; its training mode is restored. Memory does not grow with the corpus.
    Raises ValueError where attention weights or logits are NaN, and where a batch ran other layers than the one before.
    """
    builder = AtlasBuilder(model, tokenizer, start)
    options = probe if isinstance(probe, Mapping) else {} if probe else None
    probed = None if options is None else probe_scores(model, tokenizer, **options)  # first: they may refuse the model
    costs = None if effect is None else head_costs(model, effect, tokenizer)
    with evaluating(model):
        for batch in batches:
            builder.add(batch)
            if progress is not None:
                progress(builder.texts, builder.tokens)
    return with_scores(builder.atlas(), probed, costs)


class AtlasBuilder:
    """An atlas that grows by a batch at a time. Put the model into eval mode first."""

    def __init__(self, model: nn.Module, tokenizer: Any = None, start: Atlas | None = None) -> None:
        if not isinstance(model, nn.Module):
            raise ValueError(f"atlas() takes a torch.nn.Module and this is a {type(model).__name__}; load it first")
        check_initialised(model)
        self.model, self._tokenizer = model, tokenizer if tokenizer is not None else getattr(model, "tokenizer", None)
        self._reader = reader_of(model, tokenizer)
        self._classes = None if self._reader is None else TokenClasses(self._reader)
        self._device = next((one.device for one in model.parameters()), torch.device("cpu"))
        self._options = frugal_options(model)
        self._done = Atlas([], type(model).__name__, weights_fingerprint(model)) if start is None else start
        if start is not None and start.weights != weights_fingerprint(model):
            raise ValueError(
                "start is an atlas of a model with other weights; give the model that it was measured with"
            )
        self._sums = Sums.joined([layer.sums.to(self._device) for layer in self._done.layers] or [Sums.zeros(0)])
        self._reservoir = Reservoir(sum(layer.heads for layer in self._done.layers), self._device)
        self._layers = [(layer.name, layer.heads) for layer in self._done.layers]
        self._marks = [layer.marks for layer in self._done.layers]
        self.texts, self.tokens = self._done.texts, self._done.tokens

    @torch.no_grad()
    def add(self, batch: Batch) -> None:
        """Run the model on a batch and add what its heads do; where that fails, nothing is added."""
        args, kwargs = self._inputs(batch)
        with watch(self.model, tokenizer=self._tokenizer, keep=True) as seen:
            output = self.model(*args, **kwargs)
        _check_logits(output)
        records = [record for layer in seen._records() for record in layer]
        layers = [(record.name, record.sizes[1]) for record in records]
        if self._layers and layers != self._layers:
            raise ValueError(
                f"this batch ran {len(layers)} attention layers and the ones before {len(self._layers)}, or others; an "
                "atlas needs a model that runs the same layers for every batch, and no generation"
            )
        if not self._layers:
            heads, device = sum(heads for _, heads in layers), records[0].steps[0].call.device
            self._sums, self._reservoir = Sums.zeros(heads, device), Reservoir(heads, device)
            self._layers, self._marks = layers, [()] * len(layers)
        self._add_records(records)
        self._marks = [_joined(one, basis_of(record).marks) for one, record in zip(self._marks, records, strict=True)]
        self.texts += records[0].sizes[0]
        self.tokens += int(records[0].real().sum())

    def _add_records(self, records: Sequence[Record]) -> None:
        """First all sums, which may refuse a batch; then the examples."""
        _share_visible(records)
        read: dict[Any, RowTokens] = {}
        tokens = [self._tokens_of(record, read) for record in records]
        runs = _alike(records, tokens)
        self._sums = self._sums + Sums.joined([sums_of(records[run], tokens[run.start]) for run in runs])
        first = [0, *accumulate(record.sizes[1] for record in records)]
        for run in runs:
            self._reservoir.add(records[run], first[run], tokens[run.start])

    def _tokens_of(self, record: Record, read: dict[Any, RowTokens]) -> RowTokens:
        """The tokens of its rows, read once for all layers that have the same ones."""
        origin = record.steps[0].call.origin
        ids = origin.tokens if not record.across else None if origin.query_text is None else origin.query_text.ids
        key = (id(ids), id(origin.real), record.sizes[0], record.sizes[2], record.across)
        if key not in read:
            read[key] = row_tokens(record, self._classes)
        return read[key]

    def _inputs(self, batch: Batch) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """A batch as arguments of the model's forward, on its device."""
        if isinstance(batch, str):
            if self._tokenizer is None:
                raise ValueError("a batch is a string and no tokenizer is known; give tokenizer=…, or token ids")
            encoded = self._tokenizer.encode(batch)
            batch = torch.tensor([list(getattr(encoded, "ids", encoded))])
        if isinstance(batch, Tensor):
            if not batch.is_floating_point() and batch.dim() == 1:
                raise ValueError(
                    f"a batch of token ids is (B, T) and this is {tuple(batch.shape)}; ids[None] is one text"
                )
            batch = (batch,)
        if isinstance(batch, Mapping):
            return (), {**self._options, **{name: self._moved(value) for name, value in batch.items()}}
        return tuple(self._moved(value) for value in batch), dict(self._options)

    def _moved(self, value: Any) -> Any:
        return value.to(self._device) if isinstance(value, Tensor) else value

    def atlas(self, **extra: Any) -> Atlas:
        """What was added so far, on the CPU; extra: plain values that its file carries."""
        chosen = self._reservoir.samples([heads for _, heads in self._layers], self._reader)
        sums, last = self._sums.to("cpu"), list(accumulate(heads for _, heads in self._layers))
        each = zip(self._layers, last, chosen, self._marks, strict=True)
        layers = [
            LayerAtlas(name, sums.of(slice(end - heads, end)), samples, marks)
            for (name, heads), end, samples, marks in each
        ]
        for number, before in enumerate(self._done.layers):
            beside: Any = {"probed": before.probed, "probe_noise": before.probe_noise, "costs": before.costs}
            layers[number] = replace(layers[number], samples=before.samples + layers[number].samples, **beside)
        return Atlas(layers, self._done.model, self._done.weights, self.texts, self.tokens, extra)


def _share_visible(records: Sequence[Record]) -> None:
    """What layers may see is counted once for those with the same mask."""
    counted: dict[Any, tuple[Any, dict[str, Tensor]]] = {}
    for record in records:
        call, measured = record.steps[0].call, record.steps[0].measured
        hides = call.attention.mask, getattr(call.attention, "bias", None), call.origin.real
        if len(record.steps) > 1:
            continue
        key = (*map(id, hides), call.sizes, call.device)
        if key in counted:
            measured.update((name, counted[key][1][name]) for name in ("visible", "even_distance"))
        record.visible()
        counted[key] = hides, measured  # kept, so that no other object gets their ids


def _alike(records: Sequence[Record], tokens: Sequence[RowTokens]) -> list[slice]:
    """Runs of layers that are added together: fewer operations are faster, as long as a CPU's cache holds them."""
    known = [tuple(filter(record.has, AVERAGED)) for record in records]
    runs: list[slice] = []
    for number, record in enumerate(records):
        B, H, T, _ = record.sizes
        start = runs[-1].start if runs else 0
        same = number and tokens[number] is tokens[start] and known[number] == known[start]
        same = same and record.sizes == records[start].sizes
        most = _IN_CACHE if record.steps[0].call.device.type == "cpu" else _TOGETHER
        few = B * H * T * (number + 1 - start) <= most
        if same and few:
            runs[-1] = slice(start, number + 1)
        else:
            runs.append(slice(number, number + 1))
    return runs


HeadScores = Mapping[tuple[int, int], Tensor]  # by layer and head


def probe_scores(model: nn.Module, tokenizer: Any = None, **options: Any) -> HeadScores:
    """What regard.probe says of each head, and the standard errors over its texts, (2, 3) each.

    options: those of regard.probe. The standard errors are NaN where there are too few texts for one.
    """
    report = run_probe(model, tokenizer=tokenizer, **options)
    texts = len(report.ids)
    scores = {}
    for head, row in zip(report.heads(), report.scores, strict=True):
        by_text = torch.stack([getattr(head, name).double().nanmean(-1) for name in SCORES], -1)  # (texts, 3)
        noise = by_text.std(0) / math.sqrt(texts) if texts >= LEAST_TEXTS else torch.full((3,), math.nan)
        scores[head.layer, head.head] = torch.stack([row.double(), noise.double().cpu()])
    return scores


def head_costs(model: nn.Module, texts: Sequence[Any], tokenizer: Any = None) -> HeadScores:
    """What the absence of each head costs in these texts, and its standard error, (2,) each: see regard.effect."""
    effects = run_effect(model, texts, tokenizer=tokenizer)
    return {head: torch.tensor([one.loss, one.noise]) for head, one in effects.by_head().items()}


def with_scores(measured: Atlas, probed: HeadScores | None, costs: HeadScores | None) -> Atlas:
    """The atlas with these beside the sums; None leaves what it has."""

    def of_layer(scores: HeadScores, number: int, heads: int) -> Tensor:
        return torch.stack([scores[number, head].double() for head in range(heads)])

    layers = []
    for number, one in enumerate(measured.layers):
        if probed is not None:
            scores, noise = (each.clone() for each in of_layer(probed, number, one.heads).unbind(1))
            one = replace(one, probed=scores, probe_noise=None if bool(noise.isnan().all()) else noise)
        if costs is not None:
            one = replace(one, costs=of_layer(costs, number, one.heads))
        layers.append(one)
    return replace(measured, layers=layers)


@torch.no_grad()
def weights_fingerprint(model: nn.Module) -> str:
    """A hash of the names and shapes of all parameters and of some values of each.

    >>> one, two = nn.Linear(3, 5), nn.Linear(3, 5)
    >>> weights_fingerprint(one) == weights_fingerprint(one), weights_fingerprint(one) == weights_fingerprint(two)
    (True, False)
    """
    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        flat, size = parameter.detach().reshape(-1), parameter.numel()
        places = torch.linspace(0, max(size - 1, 0), min(size, _SAMPLED), dtype=torch.float64).long()
        some = flat[places.to(flat.device)].double().cpu()
        digest.update(f"{name} {tuple(parameter.shape)}".encode() + some.numpy().tobytes())
    return digest.hexdigest()


def _check_logits(output: Any) -> None:
    """Refuse a model whose last output is NaN: whatever its heads did, it does not work."""
    found = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", output)
    found = found[0] if isinstance(found, (tuple, list)) and found else found
    if isinstance(found, Tensor) and found.is_floating_point() and found.dim() and found.numel():
        last = found[..., -1, :] if found.dim() > 1 else found
        if bool(last.isnan().any()):
            raise ValueError("the logits of this batch are NaN; check the model's weights, its dtype and the padding")


def _joined(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*one, *other)))

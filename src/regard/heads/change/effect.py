"""effect: what the absence of each head costs a language model.

The same text is repeated in a batch, and each row has another head cut, so that a few forwards measure many heads. By
gradient, one forward and one backward estimate all of them: see attribution.py.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from regard.heads.calls.edits import LayerEdit, Value
from regard.heads.change.attribution import estimate
from regard.heads.change.cut import HeadNumber, Heads, To, handed_over, head_numbers
from regard.heads.change.effects import Effects, Measured, load_effects
from regard.heads.change.samples import Sample, Text, choose_tokens, encoder_of, read_samples, read_tokens
from regard.heads.inputs.pieces import reader_of
from regard.heads.intercept.intercept import intercept
from regard.heads.probe import evaluating, look_ahead
from regard.heads.report.report import Seen
from regard.heads.watch import watch
from regard.support.arguments import check_whole
from regard.support.super_init import check_initialised, missing_init_explained

__all__ = ["Effects", "effect", "load_effects"]

Group = tuple[HeadNumber, ...]  # heads that are cut together
_WATCHED = 8  # texts from which the roles of heads are known
# What one forward may take. More is not faster on a CPU.
_LOGITS = {"cpu": 256 << 20, "cuda": 4 << 30}  # bytes
_TOKENS = {"cpu": 1 << 14, "cuda": 1 << 17}


def effect(
    model: nn.Module,
    text: Text | Sequence[Text],
    *,
    heads: Heads | None = None,
    layers: Sequence[int] | int | str | None = None,
    pairs: Sequence[Sequence[HeadNumber]] | None = None,
    tokens: int | str | Sequence[int | str] | None = None,
    targets: Tensor | Sequence[Tensor] | None = None,
    to: To = 0,
    by: str = "cut",
    tokenizer: Any = None,
    batch: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Effects:
    """Measure what each head's absence costs: the loss per token with the head cut, less the loss without any cut.

    >>> import regard
    >>> model = regard.GPT.from_pretrained("tiny")
    >>> text = "Alice was beginning to get very tired, and Alice was beginning to get very tired."
    >>> effects = regard.effect(model, text, heads=[(0, 2), (4, 3), (5, 0)])
    >>> [one.name for one in effects.order()]
    ['0.2', '4.3', '5.0']
    >>> round(effects[0, 2].loss, 1)                                # nats per token
    1.8

    text: a string, token ids, or what the model is called with, {"input_ids": …, "attention_mask": …}; or a list of
        them. With several texts an effect is the mean over texts, with its standard error: the noise.
    heads: (layer, head), or several; each is cut alone. [default: all heads]
    layers: whole layers, each cut alone: numbers, or "all". [default: none]
    pairs: heads that are cut together: [((0, 2), (4, 3)), …]. [default: none]
    tokens: words ("tired@26") or positions, whose log-probability is measured too; heads are then ordered by its drop.
    targets: what the logits at each position should predict, (T,) token ids for each text, negative ones not counted;
        for logits of a whole text, one class. [default: the next token, in causal models]
    to: what a cut head hands over: 0, "mean" (over the tokens of its text), a tensor (D,) or (T, D), {(layer, head):
        tensor}, or `seen` of another run: see regard.cut.
    by: "cut": every cut is made, and what it costs is measured. [default]
        "gradient": an estimate to first order, from one forward and one backward for each text: the gradient of the
        loss times what the head would hand over less what it does (attribution patching). It holds where the change is
        small; large effects, and heads that saturate, are off. There are no numbers for single tokens, and the
        estimate of several heads is the sum of theirs.
    tokenizer: reads strings and names tokens. [default: model.tokenizer, if there is one]
    batch: how often a text is repeated in one forward, each time with another cut. [default: by size, as 256 MiB of
        logits allow; 4 GiB on a GPU]
    progress: called with how many cuts are done, and of how many.

    Works on models that `regard.cut` works on and whose output is logits, or has or begins with them. The model runs in
    eval mode, without gradients; its training mode is restored.
    """
    if not isinstance(model, nn.Module):
        raise ValueError(f"effect() takes a torch.nn.Module and this is a {type(model).__name__}; load the model first")
    check_initialised(model)
    check_whole(**({} if batch is None else {"batch": batch}))
    if by not in ("cut", "gradient"):
        raise ValueError(f'by={by!r} is not known; effects are measured by="cut", or estimated by="gradient"')
    reader = reader_of(model, tokenizer)
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    samples = read_samples(text, encoder_of(model, tokenizer), targets, device)
    with evaluating(model), torch.no_grad(), missing_init_explained():
        seen, losses, vocabulary = _uncut(model, samples, tokenizer)
        sizes = [layer[0][1] for layer in seen.sizes()]
        cuts = _groups(heads, layers, pairs, sizes)
        values = handed_over(list(dict.fromkeys(chain(*cuts))), to)
        texts = read_tokens(samples, reader)
        chosen = None if tokens is None else choose_tokens(tokens, samples, texts)
        changes: list[Tensor] = []
        totals: list[Tensor] = []  # by gradient
        for number, sample in enumerate(samples):
            own = _values_of_text(values, number, len(samples))
            if by == "gradient":
                run = partial(_losses_of, model, sample)
                totals.append(estimate(model, run, own, sizes, cuts, None if chosen is None else chosen[number]))
                changes.append(losses[number].new_full((len(cuts), sample.length), torch.nan))
            else:
                rows = batch or _rows_at_once(device, sample.length, vocabulary)
                advance = None if progress is None else partial(_advance, progress, number, len(cuts), len(samples))
                changes.append(_cut_losses(model, sample, cuts, own, rows, advance) - losses[number])
            if progress is not None:
                _advance(progress, number, len(cuts), len(samples), len(cuts))
    words = "what they did in another run" if isinstance(to, Seen) else str(to)
    words = "given values" if isinstance(to, (Tensor, Mapping)) else words
    words += ", estimated by the gradient" if by == "gradient" else ""
    roles = {key: one.role.name for key, one in seen.portraits().items()}
    return Effects(Measured(cuts, losses, changes, chosen, sizes, roles, texts, words, totals or None))


def _uncut(model: nn.Module, samples: Sequence[Sample], tokenizer: Any) -> tuple[Seen, list[Tensor], int]:
    """What the heads do with the first texts, the loss at each token of every text, and the width of the logits."""
    name, losses = type(model).__name__, []
    with watch(model, keep=False, tokenizer=tokenizer) as seen:
        for sample in samples[:_WATCHED]:
            logits = _logits(model, sample, 1)
            losses.append(_losses(logits, sample)[0])
    if samples[0].ahead and (where := look_ahead(seen)) is not None:
        raise ValueError(
            f"{name} is not causal: {where}, so the next token is no prediction; give targets=, what each position "
            "should predict, with −1 where nothing counts"
        )
    losses += [_losses(_logits(model, sample, 1), sample)[0] for sample in samples[_WATCHED:]]
    for number, (sample, loss) in enumerate(zip(samples, losses, strict=True)):
        wrong = ((sample.targets >= 0) & ~loss.isfinite()).nonzero()
        if len(wrong):
            raise ValueError(
                f"the loss of {name} is {float(loss[wrong[0]])} at token {int(wrong[0])} of text {number}, without any "
                "cut, so no effect can be measured; check the model's weights, its dtype and the padding"
            )
    return seen, losses, int(logits.shape[-1])


def _cut_losses(
    model: nn.Module,
    sample: Sample,
    cuts: Sequence[Group],
    values: Mapping[HeadNumber, Value],
    rows: int,
    advance: Callable[[int], None] | None,
) -> Tensor:
    """(N, T): the losses of a text with each cut, so many at once; advance: called with how many are done."""
    losses = [torch.empty(0, sample.length, dtype=torch.float64)]
    for at in range(0, len(cuts), rows):
        if advance is not None and at:
            advance(at)
        some = cuts[at : at + rows]
        with intercept(model, editor=_RowCuts(some, values)):
            logits = _logits(model, sample, len(some))
        losses.append(_losses(logits, sample))
    return torch.cat(losses)


def _rows_at_once(device: torch.device, length: int, vocabulary: int) -> int:
    """How many texts of this length one forward takes."""
    kind = device.type if device.type in _LOGITS else "cpu"
    return max(1, min(_LOGITS[kind] // (4 * length * vocabulary), _TOKENS[kind] // length))


def _advance(progress: Callable[[int, int], None], text: int, cuts: int, texts: int, done: int) -> None:
    progress(text * cuts + done, texts * cuts)


class _RowCuts:
    """Another cut in each text of a batch: an editor, see edits.py."""

    removes_edges = everywhere = False

    def __init__(self, cuts: Sequence[Group], values: Mapping[HeadNumber, Value]) -> None:
        self.cuts, self.values = cuts, values

    def at(self, layer: int) -> LayerEdit | None:
        """What changes in this layer."""
        by_text = [[head for number, head in cut if number == layer] for cut in self.cuts]
        heads = sorted({head for some in by_text for head in some})
        if not heads:
            return None
        return LayerEdit(layer, {head: self.values[layer, head] for head in heads}, by_text=by_text)


def _losses_of(model: nn.Module, sample: Sample) -> Tensor:
    """(T,): the losses of one forward, with gradients."""
    return _losses(_logits(model, sample, 1), sample)[0]


def _losses(logits: Tensor, sample: Sample) -> Tensor:
    """(rows, T) float64: −log p of the target at each position, NaN where there is none."""
    places = (sample.targets >= 0).nonzero()[:, 0]
    wanted = sample.targets[places].to(logits.device)
    losses = torch.full((len(logits), sample.length), torch.nan, dtype=torch.float64)
    for row, one in enumerate(logits):  # one at a time: logsumexp takes as much memory as its input
        scores = one[(places - sample.ahead).to(one.device)]
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        losses[row, places] = (scores.logsumexp(-1) - scores.gather(-1, wanted[:, None])[:, 0]).double().cpu()
    return losses


def _logits(model: nn.Module, sample: Sample, rows: int) -> Tensor:
    """(rows, T, V), for this text so many times."""
    name = type(model).__name__
    inputs = {key: _repeated(one, rows) for key, one in sample.kwargs.items()}
    if "use_cache" in inspect.signature(model.forward).parameters:
        inputs["use_cache"] = False
    output = model(*(_repeated(one, rows) for one in sample.args), **inputs)
    found = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", output)
    found = found[0] if isinstance(found, (tuple, list)) and found else found
    if not isinstance(found, Tensor) or not found.is_floating_point():
        raise ValueError(
            f"{name} returned a {type(output).__name__} without logits; effect() needs the model with its language "
            "model head, whose output is logits, has .logits or begins with them"
        )
    logits = found[:, None] if found.dim() == 2 else found
    if logits.dim() != 3 or logits.shape[:2] != (rows, sample.length):
        raise ValueError(
            f"{name} returned {tuple(found.shape)} for {rows} × {sample.length} tokens; logits are (batch, tokens, "
            "vocabulary), or (batch, classes) with one target for each text"
        )
    largest = int(sample.targets.max())
    if largest >= logits.shape[-1]:
        raise ValueError(
            f"{name} returned {logits.shape[-1]} numbers for each token, so target {largest} has no logit; effect() "
            "needs the model with its language model head"
        )
    return logits


def _repeated(value: Any, rows: int) -> Any:
    return value.expand(rows, *value.shape[1:]) if isinstance(value, Tensor) and value.dim() else value


def _groups(
    heads: Heads | None, layers: Any, pairs: Sequence[Sequence[HeadNumber]] | None, sizes: Sequence[int]
) -> list[Group]:
    """The heads of each cut, all of which exist. sizes: the number of heads of each layer."""
    if heads is None and layers is None and pairs is None:
        return [(head,) for layer in range(len(sizes)) for head in _heads_of(layer, sizes)]
    named = range(len(sizes)) if layers == "all" else [layers] if isinstance(layers, int) else layers or ()
    groups: list[Group] = [(head,) for head in head_numbers(heads) or ()]
    groups += [_heads_of(layer, sizes) for layer in named]
    groups += [tuple(sorted(head_numbers(list(pair)) or ())) for pair in pairs or ()]
    _check_groups(groups, sizes)
    return list(dict.fromkeys(groups))


def _check_groups(groups: Sequence[Group], sizes: Sequence[int]) -> None:
    for layer, head in chain(*groups):
        if head >= len(_heads_of(layer, sizes)):
            raise ValueError(f"there is no head {layer}.{head}; {_exist(sizes[layer], 'head', f'layer {layer}')}")
    if not groups or not all(groups):
        raise ValueError("nothing is named to be cut; give heads, layers or pairs, or none of them for every head")


def _heads_of(layer: Any, sizes: Sequence[int]) -> Group:
    if not isinstance(layer, int) or not 0 <= layer < len(sizes):
        raise ValueError(f"there is no layer {layer}; {_exist(len(sizes), 'layer', 'the model')}")
    return tuple((layer, head) for head in range(sizes[layer]))


def _exist(count: int, what: str, where: str) -> str:
    return f"{where} has {what} 0 only" if count == 1 else f"{where} has {what}s 0 to {count - 1}"


def _values_of_text(values: Mapping[HeadNumber, Value], number: int, texts: int) -> dict[HeadNumber, Value]:
    """What each head hands over in this text; of values (B, T, D), those of this text."""
    mine: dict[HeadNumber, Value] = {}
    for head, value in values.items():
        if isinstance(value, Tensor) and value.dim() == 3:
            if len(value) != texts:
                raise ValueError(
                    f"head {head[0]}.{head[1]} is to hand over values of {len(value)} texts, and {texts} are measured; "
                    "give those of as many texts, or (T, D) for all of them"
                )
            value = value[number]
        mine[head] = value
    return mine

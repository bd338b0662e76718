"""Runs: a model that has read a text, and what its heads did."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from regard.commands.terminal.progress import progress_bar
from regard.support.argument_names import named_as_flags

if TYPE_CHECKING:
    from regard.commands.shared.models import ModelWithText
    from regard.heads.change.effects import Effects
    from regard.heads.report.report import Seen

LONGEST_KEPT = 4096  # tokens of a text whose queries and keys are kept to draw a head that nobody asked for


class TitledRun(NamedTuple):
    """A model that has read a text, and what its heads did."""

    title: str
    model: str
    opened: ModelWithText
    seen: Seen
    is_cut: bool = False  # steps of its layers would be those without the cut

    def as_json(self) -> dict[str, Any]:
        """The model, the tokens, and the means of every head."""
        tokens = None if self.seen.tokens is None else [list(one) for one in self.seen.tokens]
        return {"model": self.model, "tokens": tokens, **self.seen.summary()}


def open_texts(
    models: Sequence[str], texts: Sequence[str], max_tokens: int | None, device: str, needs_steps: str | None = None
) -> list[ModelWithText]:
    """Each text as each model reads it; needs_steps: the option that shows steps, which not every model names."""
    from regard.commands.shared.models import load_reader

    with named_as_flags("device"):
        readers = [load_reader(name, device, needs_steps) for name in models]
    return [read(text, max_tokens) for read in readers for text in texts]


def watch_text(opened: ModelWithText, keep: bool | None = None, progress: bool = True) -> Seen:
    """Run the model once on its text and return the report; progress: show a bar."""
    import torch

    from regard.heads.probe import frugal_options
    from regard.heads.watch import watch

    model, inputs = opened.model, opened.inputs
    device = next(model.parameters()).device
    options = frugal_options(model)  # logits for every token and a cache can take more memory than the report
    with (
        torch.no_grad(),
        progress_bar("watching", progress) as advance,
        watch(model, tokenizer=opened.tokenizer, keep=keep) as seen,
    ):
        calls = count(1)
        seen.on_call = lambda forward, layer: advance(next(calls), opened.layers)
        try:
            model(**{name: value.to(device) for name, value in inputs.items()}, **options)
        except IndexError as error:
            size = opened.tokens
            raise ValueError(
                f"the model cannot read {size} tokens ({error}); fewer: --max-tokens {size // 2}"
            ) from None
    seen.on_call = None
    return seen


def measure_effects(opened: Sequence[ModelWithText], **options: Any) -> Effects:
    """The effects of cuts in one model that has read these texts, with a bar; options: those of regard.effect."""
    from regard.heads.change.effect import effect

    model, tokenizer, inputs = opened[0].model, opened[0].tokenizer, [one.inputs for one in opened]
    with progress_bar("cutting") as advance:
        return effect(model, inputs, tokenizer=tokenizer, progress=advance, **options)

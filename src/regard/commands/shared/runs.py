"""Runs: a model that has read a text, and what its heads did."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from regard.commands.shared.options import blamed_on
from regard.commands.terminal.progress import progress_bar, said_after_a_second
from regard.show.terminal.table import terminal_width
from regard.support.argument_names import named_as_flags

if TYPE_CHECKING:
    from regard.commands.shared.models import ModelWithText
    from regard.heads.change.effects import Effects
    from regard.heads.report.report import Seen
    from regard.heads.report.views import Head
    from regard.traces.trace import Trace

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

    def name_heads(self, flag: str, heads: Sequence[tuple[int, int]]) -> list[str]:
        """The names of heads as a person typed them, all of which exist."""
        names = [f"{layer}.{head}" for layer, head in heads]
        for name, head in zip(names, heads, strict=True):
            with blamed_on(f"{flag} {name}"):
                _ = self.seen[head]
        return names


def open_texts(
    models: Sequence[str], texts: Sequence[str], max_tokens: int | None, device: str, needs_steps: str | None = None
) -> list[ModelWithText]:
    """Each text as each model reads it; needs_steps: the option that shows steps, which not every model names."""
    with said_after_a_second("loading the model"), named_as_flags("device"):
        from regard.commands.shared.models import load_reader

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
            n = opened.tokens
            raise ValueError(f"the model cannot read {n} tokens ({error}); fewer: --max-tokens {n // 2}") from None
    seen.on_call = None
    return seen


def measure_effects(opened: Sequence[ModelWithText], **options: Any) -> Effects:
    """The effects of cuts in one model that has read these texts, with a bar; options: those of regard.effect."""
    from regard.heads.change.effect import effect

    model, tokenizer, inputs = opened[0].model, opened[0].tokenizer, [one.inputs for one in opened]
    with progress_bar("cutting") as advance:
        return effect(model, inputs, tokenizer=tokenizer, progress=advance, **options)


def step_of_head(opened: ModelWithText, head: Head, name: str) -> tuple[Trace, str, str]:
    """The steps of a head's layer; of the step of this name a heading, and its matrix with a legend."""
    from regard.show.terminal.weights import belongs_to_a_head, step_matrix
    from regard.traces.trace import trace_layer

    steps = trace_layer(opened.model, head.layer, **opened.inputs)
    if name not in steps:
        raise ValueError(f"--step {name} is not a step of this layer; it has {', '.join(steps.names)}")
    step, tokens = steps.find(name), head.query_tokens
    labels = [str(i) for i in range(opened.tokens)] if tokens is None else tokens[0].labels
    table, legend = step_matrix(step, labels, head.head, steps["weights"].shape[1], terminal_width())
    of_head = f" of head {head.layer}.{head.head}" if belongs_to_a_head(step) else ""
    return steps, f"{name}{of_head}: {step.operation}", f"{table}\n\n{legend}"

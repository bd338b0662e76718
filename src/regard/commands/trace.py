"""`regard trace`: attention step by step, for the worked example, a sentence, or any sizes."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from regard.traces.trace import Trace

_WIDTH, _HEADS = 8, 2  # of the layer that follows a sentence


def trace(
    text: Annotated[str, typer.Argument(help="Sentence to trace. Without one, the worked example is shown.")] = "",
    tokens: Annotated[int | None, typer.Option(min=1, help="Show shapes only, for this many tokens.")] = None,
    d_model: Annotated[int, typer.Option(min=1, help="Model width, with --tokens.")] = 768,
    heads: Annotated[int, typer.Option(min=1, help="Number of heads, with --tokens.")] = 12,
    kv_heads: Annotated[
        int | None,
        typer.Option(
            min=1, help="Number of key/value heads (grouped-query attention), with --tokens.", show_default="--heads"
        ),
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Batch size, with --tokens.")] = 1,
    causal: Annotated[bool, typer.Option(help="Hide later tokens.")] = True,
) -> None:
    """Show the steps of attention, with their shapes and values."""
    if tokens and text:
        raise ValueError("give a sentence or --tokens, not both: a sentence brings its own number of tokens")
    if tokens:
        _print_shapes(tokens, d_model, heads, kv_heads or heads, batch, causal)
    elif text:
        _print_sentence(text, causal)
    else:
        _print_ladder()


def _print_shapes(tokens: int, d_model: int, heads: int, kv_heads: int, batch: int, causal: bool) -> None:
    import torch

    import regard

    # On the meta device tensors have shapes and no values, so any size is free.
    with torch.device("meta"):
        layer = regard.MultiHeadAttention(
            d_model, d_model, tokens, dropout=0.0, num_heads=heads, num_kv_heads=kv_heads, causal=causal
        )
        steps = regard.trace(layer, torch.empty(batch, tokens, d_model))
    typer.echo(f"\n{steps}")
    matrix = batch * heads * tokens * tokens * 4 / 2**20
    typer.echo(
        f"\n  {regard.count_parameters(layer):,} parameters. The weights alone would be {matrix:,.1f} MiB in float32;"
        "\n  regard.MultiHeadAttention never keeps them.\n\n  See values: regard trace"
    )


def _print_ladder() -> None:
    import torch

    import regard
    from regard import ladder

    words, x = ladder.SENTENCE, ladder.VECTORS
    typer.echo(f'\n  "{" ".join(words)}", six words of three numbers each, up the ladder')

    with regard.trace() as steps:
        ladder.simplified_attention(x)
    _print_steps("1  simplified: each word mixed with those most like it", steps, words)

    torch.manual_seed(123)
    rungs: list[tuple[str, torch.nn.Module]] = [
        ("2  self-attention: + learned queries, keys, values, and a scale", ladder.SelfAttention(3, 2)),
        ("3  causal: + no look at the future", ladder.CausalAttention(3, 2, context_length=6, dropout=0.0)),
        ("4  multi-head: + two heads, and a projection that mixes them", ladder.MultiHeadAttention(3, 4, 6, 0.0, 2)),
    ]
    for title, layer in rungs:
        _print_steps(title, regard.trace(layer.eval(), x[None]), words)
    typer.echo("\n  Weights 2–4 are untrained: every word still looks everywhere.")
    typer.echo('  Your own sentence: regard trace "The cat sat on the mat"')
    typer.echo("  Your own sizes:    regard trace --tokens 100 --d-model 768 --heads 12 --batch 4")


def _print_sentence(text: str, causal: bool) -> None:
    import torch

    import regard

    words = text.split()
    if not words:
        raise ValueError("the sentence is empty; try: regard trace 'The cat sat on the mat'")
    # The seed of a word's vector is its spelling, so the same word always has the same vector.
    seeds = [zlib.crc32(word.lower().encode()) for word in words]
    vectors = [torch.randn(_WIDTH, generator=torch.Generator().manual_seed(seed)) for seed in seeds]
    torch.manual_seed(123)
    layer = regard.MultiHeadAttention(_WIDTH, _WIDTH, None, dropout=0.0, num_heads=_HEADS, causal=causal)
    size = f"{len(words)} tokens as random vectors of {_WIDTH}"
    typer.echo(f'\n  "{text}", {size}, an untrained layer of {_HEADS} heads')
    _print_steps("", regard.trace(layer, torch.stack(vectors)[None]), words)
    typer.echo("\n  The ladder, from nothing: regard trace")


def _print_steps(title: str, steps: Trace, words: list[str]) -> None:
    """The table of a trace, then the weights of each head."""
    from regard.show.weights import weights_table

    typer.echo(f"\n  {title}\n" if title else "")
    typer.echo(steps.table(80))
    weights = steps["weights"]
    weights = weights[0] if weights.dim() > 2 else weights
    heads = weights if weights.dim() == 3 else weights[None]
    for number, head in enumerate(heads):
        which = f" of head {number}" if len(heads) > 1 else ""
        typer.echo(f"\n  weights{which}: who (row) looks where (column)\n")
        typer.echo(weights_table(head, words, words, digits=4 if len(words) <= 7 else 2))

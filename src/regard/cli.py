"""The command: regard trace · watch · generate · train · bench. Plain words, 80 columns, and the next command is always named."""

from __future__ import annotations

import os
import sys
import zlib
from importlib import metadata
from importlib.util import find_spec
from typing import Annotated

import torch
import typer

import regard
from regard import ladder
from regard.commands.train import train
from regard.show.weights import weights_table

app = typer.Typer(
    help="Attention you can read, see, check and ship.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
bench = typer.Typer(help="Measure side by side with the peers, in one run.", no_args_is_help=True)
app.add_typer(bench, name="bench")


@app.callback(invoke_without_command=True)
def about(version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False) -> None:
    """Attention you can read, see, check and ship."""
    if version:
        typer.echo(f"regard {metadata.version('regard')}")
        raise typer.Exit


@app.command()
def trace(
    text: Annotated[str, typer.Argument(help="a sentence to follow; without one, the worked example")] = "",
    tokens: Annotated[int | None, typer.Option(min=1, help="shapes only, for this many tokens")] = None,
    d_model: Annotated[int, typer.Option(min=1, help="width of a token's vector")] = 768,
    heads: Annotated[int, typer.Option(min=1, help="number of heads")] = 12,
    kv_heads: Annotated[int | None, typer.Option(min=1, help="key/value heads, if fewer (grouped queries)")] = None,
    batch: Annotated[int, typer.Option(min=1, help="batch size")] = 1,
    causal: Annotated[bool, typer.Option(help="hide the future")] = True,
) -> None:
    """Follow attention step by step: names, operations, shapes and values."""
    if tokens and text:
        raise ValueError("give a sentence or --tokens, not both: a sentence brings its own number of tokens")
    if tokens:
        _trace_shapes(tokens, d_model, heads, kv_heads or heads, batch, causal)
    elif text:
        _trace_sentence(text, causal)
    else:
        _trace_ladder()


def _trace_shapes(tokens: int, d_model: int, heads: int, kv_heads: int, batch: int, causal: bool) -> None:
    # On the meta device tensors have shapes and no numbers: any size is free.
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


def _trace_ladder() -> None:
    words, x = ladder.SENTENCE, ladder.VECTORS
    typer.echo(f'\n  "{" ".join(words)}", six words of three numbers each, up the ladder')

    with regard.trace() as steps:
        ladder.simplified_attention(x)
    _rung("1  simplified: each word mixed with those most like it", steps, words)

    torch.manual_seed(123)
    rungs: list[tuple[str, torch.nn.Module]] = [
        ("2  self-attention: + learned queries, keys, values, and a scale", ladder.SelfAttention(3, 2)),
        ("3  causal: + no look at the future", ladder.CausalAttention(3, 2, context_length=6, dropout=0.0)),
        ("4  multi-head: + two heads, and a projection that mixes them", ladder.MultiHeadAttention(3, 4, 6, 0.0, 2)),
    ]
    for title, layer in rungs:
        _rung(title, regard.trace(layer.eval(), x[None]), words)
    typer.echo("\n  Weights 2–4 are untrained: every word still looks everywhere.")
    typer.echo('  Your own sentence: regard trace "The cat sat on the mat"')
    typer.echo("  Your own sizes:    regard trace --tokens 100 --d-model 768 --heads 12 --batch 4")


def _trace_sentence(text: str, causal: bool) -> None:
    words = text.split()
    if not words:
        raise ValueError("the sentence is empty; try: regard trace 'The cat sat on the mat'")
    # A word's vector comes from its letters alone, so the same word always has the same one.
    vectors = [torch.randn(8, generator=torch.Generator().manual_seed(zlib.crc32(w.lower().encode()))) for w in words]
    torch.manual_seed(123)
    layer = regard.MultiHeadAttention(8, 8, None, dropout=0.0, num_heads=2, causal=causal)
    typer.echo(f'\n  "{text}", {len(words)} tokens as random vectors of 8, an untrained layer of 2 heads')
    _rung("", regard.trace(layer, torch.stack(vectors)[None]), words)
    typer.echo("\n  The ladder, from nothing: regard trace")


def _rung(title: str, steps: regard.Trace, words: list[str]) -> None:
    typer.echo(f"\n  {title}\n" if title else "")
    typer.echo(steps.table(80))
    weights = steps["weights"]
    weights = weights[0] if weights.dim() > 2 else weights
    heads = weights if weights.dim() == 3 else weights[None]
    for number, head in enumerate(heads):
        which = f" of head {number}" if len(heads) > 1 else ""
        typer.echo(f"\n  weights{which}: who (row) looks where (column)\n")
        typer.echo(weights_table(head, words, words, digits=4 if len(words) <= 7 else 2))


@app.command()
def watch(
    model: Annotated[
        str, typer.Argument(help="A model of transformers: a directory, or a name on the hub; else the one in the box.")
    ] = "tiny",
    text: Annotated[
        str | None, typer.Option(help="A sentence, a file, or - for standard input; else one that says things twice.")
    ] = None,
    layer: Annotated[str | None, typer.Option(help="One layer, by number or name.")] = None,
    head: Annotated[str | None, typer.Option(help="One head of it, as 3 or 4.3: where each token looks.")] = None,
    save: Annotated[str | None, typer.Option(help="Write what was seen to this file.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Read no more than this many tokens.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, …")] = "cpu",
    every: Annotated[bool, typer.Option("--all", help="Every head, not only the clearest.")] = False,
) -> None:
    """See what every head of a model does with a text."""
    from regard.commands.own_model import BOXED, opened
    from regard.commands.watch import run

    ours = model == BOXED or find_spec("transformers") is None
    run(
        model, text, opener=opened if ours else None, layer=layer, head=head, save=save, max_tokens=max_tokens,
        device=device, all=every,
    )  # fmt: skip


app.command()(train)


@app.command()
def generate(
    prompt: Annotated[str, typer.Argument(help="How the text begins.")] = "",
    model: Annotated[
        str | None, typer.Option(help="A directory, or a name on the hub; else the model in the box.")
    ] = None,
    max_new_tokens: Annotated[int, typer.Option(help="Write no more than this.")] = 200,
    temperature: Annotated[float, typer.Option(help="0 takes the likeliest token; higher is bolder.")] = 0.8,
    top_k: Annotated[int | None, typer.Option(help="Only the k likeliest tokens; 0 for all.")] = 50,
    top_p: Annotated[float | None, typer.Option(help="Only the likeliest that make up this probability.")] = None,
    seed: Annotated[int | None, typer.Option(help="The same seed writes the same text.")] = None,
    stop: Annotated[list[str] | None, typer.Option(help="End before this text; may be repeated.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, …; a GPU if there is one.")] = None,
) -> None:
    """Write on from a beginning, word by word."""
    from regard.commands.generate import run

    run(
        prompt, model=model, max_new_tokens=max_new_tokens, temperature=temperature, top_k=top_k or None, top_p=top_p,
        seed=seed, stop=stop or (), device=device,
    )  # fmt: skip


# The benchmarks read their own command line: they also run where there is torch and nothing else.
_THEIR_OWN = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


@bench.command("layer", context_settings=_THEIR_OWN)
def bench_layer(context: typer.Context) -> None:
    """One attention layer against the textbook layer, PyTorch, transformers and x-transformers."""
    from regard.bench.layer import main as run

    run(context.args)


@bench.command("memory", context_settings=_THEIR_OWN)
def bench_memory(context: typer.Context) -> None:
    """The memory of one layer over a long text, on the CPU."""
    from regard.bench.memory import main as run

    run(context.args)


@bench.command("watch", context_settings=_THEIR_OWN)
def bench_watch(context: typer.Context) -> None:
    """The price of seeing: attention with every statistic against attention alone, and whole models."""
    from regard.bench.watch import main as run

    run(context.args)


@bench.command("generate", context_settings=_THEIR_OWN)
def bench_generate(context: typer.Context) -> None:
    """Writing text, against transformers with its default and its static cache."""
    from regard.bench.generate import main as run

    run(context.args)


@bench.command("train", context_settings=_THEIR_OWN)
def bench_train(context: typer.Context) -> None:
    """A training step, against transformers' GPT-2."""
    from regard.bench.train import main as run

    run(context.args)


def main() -> None:
    """Run the command; a rule that was missed is one line on stderr, not a traceback."""
    try:
        _run()
    except SystemExit as ending:
        if "TORCHELASTIC_RUN_ID" not in os.environ:
            raise
        # Under torchrun all is done, and the others have been taken leave of. Threads of torch.distributed that still
        # let go of tensors would abort the process, were they to find Python half taken down.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(ending.code if isinstance(ending.code, int) else int(ending.code is not None))


def _run() -> None:
    try:
        app()
    except ValueError as error:
        typer.echo(f"regard: {error}", err=True)
        raise SystemExit(2) from None
    except OSError as error:  # a file that may not be read, a full disk
        where = f"{error.filename}: " if error.filename else ""
        typer.echo(f"regard: {where}{error.strerror or error}", err=True)
        raise SystemExit(2) from None

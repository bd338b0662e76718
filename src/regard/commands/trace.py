"""`regard trace`: attention step by step, for the worked example, a sentence, or any sizes."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from regard.commands.shared.options import TINY, argument, option, read_head, refuse
from regard.commands.shared.runs import open_texts, step_of_head, watch_text
from regard.commands.terminal.progress import said_after_a_second
from regard.show.terminal.table import terminal_width, wrapped

if TYPE_CHECKING:
    from regard.heads.report.report import Seen
    from regard.traces.trace import Trace

_LONGEST = 30  # characters of a sentence that is repeated in the next command


def trace(
    text: Annotated[
        str | None,
        argument("Sentence for the trained model in the package. [default: the worked example]", metavar="TEXT"),
    ] = None,
    head: Annotated[
        str | None, option("Head to show, with a sentence: 4.3, or 3 with --layer 4. [default: the clearest role]")
    ] = None,
    layer: Annotated[int | None, option("Layer to show, with a sentence. [default: the clearest role]", min=0)] = None,
    code: Annotated[
        int | None, option("Print the code of a rung of the ladder, without helpers and checks: 1 to 4.", min=1, max=4)
    ] = None,
    step: Annotated[str | None, option("Step to show as a matrix: scores, mask, queries, … [default: weights]")] = None,
    tokens: Annotated[int | None, option("Show shapes only, for this many tokens. [default: off]", min=1)] = None,
    # The defaults below are None, so that an option that is typed where it means nothing can be refused.
    d_model: Annotated[int | None, option("Model width, with --tokens. [default: 768]", min=1)] = None,
    heads: Annotated[int | None, option("Number of heads, with --tokens. [default: 12]", min=1)] = None,
    kv_heads: Annotated[
        int | None,
        option("Number of key/value heads (grouped-query attention), with --tokens. [default: --heads]", min=1),
    ] = None,
    batch: Annotated[int | None, option("Batch size, with --tokens. [default: 1]", min=1)] = None,
    causal: Annotated[
        bool | None, option("Hide later tokens, with --tokens. [default: causal]", "--causal/--no-causal")
    ] = None,
) -> None:
    """Show the steps of attention, with their shapes and values."""
    sizes = {"--d-model": d_model, "--heads": heads, "--kv-heads": kv_heads, "--batch": batch}
    sizes["--no-causal" if causal is False else "--causal"] = causal is not None
    if code is not None:
        others = {**sizes, "--step": step, "--head": head, "--layer": layer, "--tokens": tokens, "TEXT": text}
        refuse(others, "--code prints the code of a rung", "leave it out")
        from regard.commands.plain_rungs import rung_code

        print(rung_code(code), end="")
    elif tokens is not None:
        if text is not None:
            raise ValueError("give a sentence or --tokens, not both: a sentence brings its own number of tokens")
        remedy = 'for values, give a sentence: regard trace "The cat sat on the mat"'
        refuse({"--step": step, "--head": head, "--layer": layer}, "--tokens shows shapes only", remedy)
        _print_shapes(tokens, d_model or 768, heads or 12, kv_heads, batch or 1, causal is not False)
    elif text is not None:
        reason = "a sentence goes through the trained model in the package, which is causal and has its own sizes"
        refuse(sizes, reason, "for other sizes, give --tokens instead of a sentence")
        _print_sentence(text, layer, head, "weights" if step is None else step, everything=step is None)
    else:
        refuse(sizes, "the worked example has its own sizes", "for other sizes, add --tokens 100")
        remedy = 'give a sentence: regard trace "The cat sat on the mat" --head 4.3'
        refuse({"--head": head, "--layer": layer}, "the worked example shows every head", remedy)
        _print_ladder("weights" if step is None else step, everything=step is None)


def _print_shapes(tokens: int, d_model: int, heads: int, kv_heads: int | None, batch: int, causal: bool) -> None:
    _check_divisible("--d-model", d_model, "--heads", heads)
    _check_divisible("--heads", heads, "--kv-heads", kv_heads or heads)
    with said_after_a_second("loading torch"):
        import torch

        import regard

    # On the meta device tensors have shapes and no values, so any size is free.
    with torch.device("meta"):
        layer = regard.MultiHeadAttention(
            d_model, d_model, tokens, dropout=0.0, num_heads=heads, num_kv_heads=kv_heads, causal=causal
        )
        steps = regard.trace(layer, torch.empty(batch, tokens, d_model))
    print(f"\n{steps.table(terminal_width())}")
    _echo(
        f"Shapes: {batch} text{'s' * (batch != 1)}, {tokens} token{'s' * (tokens != 1)}, "
        f"{d_model} numbers per token in {heads} head{'s' * (heads != 1)} of {d_model // heads}."
    )
    matrix = batch * heads * tokens * tokens * 4 / 2**20
    _echo(
        f"{regard.count_parameters(layer):,} parameters. The weights alone would be {matrix:,.1f} MiB in float32; "
        "regard.MultiHeadAttention never keeps them."
    )
    _echo_commands({"See values": "regard trace"})


def _check_divisible(width_flag: str, width: int, count_flag: str, count: int) -> None:
    if width % count:
        from regard.support.arguments import near_divisors

        choices = near_divisors(width, count)
        raise ValueError(f"{width_flag} {width} is not divisible by {count_flag} {count}; try {count_flag} {choices}")


def _print_ladder(step: str, everything: bool) -> None:
    with said_after_a_second("loading torch"):
        import regard
        from regard import ladder
        from regard.commands.ladder_page import trainable_rungs

    with regard.trace() as first:
        ladder.simplified_attention(ladder.VECTORS)
    titles = (
        "1  simplified: each word mixed with all words, by their dot products",
        "2  self-attention: + learned queries, keys, values, and a scale",
        "3  causal: + no look at the future",
        "4  multi-head: + two heads, and a projection that mixes them",
    )
    traces = [first, *(regard.trace(layer, ladder.VECTORS[None]) for layer in trainable_rungs())]
    if not any(step in steps for steps in traces):
        raise ValueError(f"--step {step} is not a step of the ladder; it has {', '.join(traces[-1].names)}")
    _echo(f'"{" ".join(ladder.SENTENCE)}": six words of three numbers each')
    legend = ""
    for title, steps in zip(titles, traces, strict=True):
        _echo(title, then="     ")
        if everything:
            print(f"\n{steps.table(terminal_width())}")
        if step not in steps:
            _echo(f"No step is called {step} here.")
            continue
        before, legend = legend, _print_heads(steps, step, ladder.SENTENCE)
        if legend != before:
            print(f"\n{legend}")
    if everything:
        _echo("Each step is made from those above it.")
        _echo("shape: 1 text × 6 tokens × numbers per token, or 1 text × 2 heads × …", before="")
    _echo("Rungs 2 to 4 are untrained: every word still looks everywhere.")
    _echo_commands(
        {
            "Another step": f"regard trace --step {_another(step)}",
            "A trained model": 'regard trace "The cat sat on the mat"',
            "Your own sizes": "regard trace --tokens 100 --d-model 768 --heads 12",
        }
    )


def _print_heads(steps: Trace, name: str, words: list[str]) -> str:
    """Print the matrix of each head of a step; return the legend."""
    from regard.show.terminal.weights import heads_of, step_matrix

    step = steps.find(name)
    count, legend = heads_of(step), ""
    for number in range(count):
        table, legend = step_matrix(step, words, number, count, terminal_width(), digits=4)
        _echo(f"{name}{f' of head {number}' if count > 1 else ''}: {step.operation}")
        print(f"\n{table}")
    return legend


def _another(step: str) -> str:
    return "mask" if step == "scores" else "scores"


def _print_sentence(text: str, layer: int | None, head: str | None, name: str, everything: bool) -> None:
    place, which = read_head(head, layer)
    chosen = None if place is None else int(place), which
    if not text.strip():
        raise ValueError('the sentence is empty; try: regard trace "The cat sat on the mat"')
    with said_after_a_second("loading torch"):
        from regard.commands.shared.models import TextTooLong

    try:
        (opened,) = open_texts([TINY], [text], None, "cpu")
    except TextTooLong as error:
        most = f"{TINY} reads at most {error.longest}"
        raise ValueError(f"the sentence has {error.tokens} tokens, and {most}; shorten it") from None
    config: Any = opened.model.config
    tokens, layers, heads = opened.tokens, config.num_layers, config.num_heads
    seen = watch_text(opened, keep=False, progress=False)
    number, which = _find_head(seen, chosen, layers, heads)
    steps, heading, matrix = step_of_head(opened, seen[number, which], name)

    quoted = shlex.quote(text) if len(text) <= _LONGEST else '"…"'
    _echo(f"{TINY}, the trained model in the package: {layers} layers × {heads} heads")
    _echo(f"{tokens} token{'s' * (tokens != 1)} · head {number}.{which}: head {which} of layer {number}", before="")
    _echo(_role_line(seen, (number, which), chosen, tokens), before="")
    if everything:
        print(f"\n{steps.table(terminal_width())}")
        D = steps["context"].shape[-1]
        _echo(
            f"x: the text as layer {number} gets it, after its norm. Each step is made from those above it. "
            f"shape: 1 text × {tokens} tokens × {config.d_model} numbers, or {heads} heads of {D}."
        )
    _echo(heading)
    print(f"\n{matrix}")
    other = next((one for one in seen.order() if one != (number, which)), (number, which))
    _echo_commands(
        {
            "Another step": f"regard trace {quoted} --head {number}.{which} --step {_another(name)}",
            "Another head": f"regard trace {quoted} --head {other[0]}.{other[1]}",
            "Every head": f"regard see {quoted}",
        }
    )


def _find_head(seen: Seen, chosen: tuple[int | None, int | None], layers: int, heads: int) -> tuple[int, int]:
    """The head to show: the one that was chosen, or the first in the order of the report."""
    layer, head = chosen
    if layer is not None and layer >= layers:
        raise ValueError(f"layer {layer} does not exist: the model has {layers} layers, 0 to {layers - 1}")
    if head is not None and head >= heads:
        raise ValueError(f"head {head} does not exist: a layer has {heads} heads, 0 to {heads - 1}")
    first = seen.order(layer)[0]
    return first if layer is None or head is None else (layer, head)


def _role_line(seen: Seen, head: tuple[int, int], chosen: tuple[int | None, int | None], tokens: int) -> str:
    from regard.heads.report.roles import ENOUGH

    if tokens < ENOUGH:
        return f"No role: that needs at least {ENOUGH} tokens, and this text has {tokens}."
    role = seen.portraits()[head].role
    if chosen[1] is not None:
        return str(role)
    where = "" if chosen[0] is None else f" in layer {chosen[0]}"
    if not role.clear:
        return f"{role}. No head{where} has a clear role for this text; this is the first in the list."
    return f"{role}. Chosen as the clearest role{where} for this text: rare roles first, first token last."


def _echo(text: str, then: str | None = None, before: str = "\n") -> None:
    """Print a paragraph after an empty line; `then` is the indent of its second and later lines."""
    print(before + wrapped(text, terminal_width(), then=then))


def _echo_commands(commands: Mapping[str, str]) -> None:
    """Print what to type next; where the terminal is narrow, in lines that a shell takes together."""
    print()
    first, width = max(map(len, commands)) + 3, terminal_width()
    narrow = max(map(len, commands.values())) + first + 2 > width
    for purpose, command in commands.items():
        if not narrow:
            print(f"  {purpose + ':':<{first}}{command}")
            continue
        lines = [""]
        for part in command.replace(" --", "\n--").split("\n"):
            if lines[-1] and len(lines[-1]) + len(part) + 7 > width:  # the indent, a space, and " \\"
                lines.append("  ")
            lines[-1] += " " * bool(lines[-1].strip()) + part
        print(f"  {purpose}:\n    " + " \\\n    ".join(lines))

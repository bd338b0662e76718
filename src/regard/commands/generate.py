"""`regard generate "Once upon a time"`: text in the terminal, token by token.

The text alone goes to stdout, so that it can be piped; the statistics of the run go to stderr.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import typer

from regard.commands.shared import options
from regard.commands.shared.options import TINY
from regard.support.argument_names import named_as_flags
from regard.support.printable import UNPRINTABLE, styled

_TOP_K = 50  # unless --top-k is given
_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"


def generate(
    prompt: Annotated[str, typer.Argument(help="Text to continue.", show_default="an empty text")] = "",
    model: options.Model = TINY,
    max_new_tokens: Annotated[int, typer.Option(help="Maximum number of tokens to generate.")] = 200,
    temperature: Annotated[float, typer.Option(help="Sampling temperature. 0 takes the most likely token.")] = 0.8,
    top_k: Annotated[
        int | None, typer.Option(help="Sample from the k most likely tokens. 0 for all.", show_default="50")
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(help="Sample from the most likely tokens with this total probability.", show_default="off"),
    ] = None,
    min_p: Annotated[
        float | None,
        typer.Option(help="Sample from tokens at least this likely relative to the best.", show_default="off"),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Random seed. The same seed gives the same text.", show_default="random")
    ] = None,
    stop: Annotated[
        list[str] | None, typer.Option(help="Stop before this text. May be repeated.", show_default="none")
    ] = None,
    samples: Annotated[int, typer.Option(help="Number of texts. Each has the seed after the one before.")] = 1,
    device: Annotated[
        str | None, typer.Option(help="Device: cpu, cuda, …", show_default="cuda if available, else cpu")
    ] = None,
) -> Any:
    """Generate text from a prompt."""
    _check_sampling(temperature, samples, {"--top-k": top_k, "--top-p": top_p, "--min-p": min_p, "--seed": seed})
    from regard.commands.shared.models import load_gpt

    with named_as_flags("device"):
        loaded = load_gpt(model, device)
    first = random.randrange(2**31) if seed is None else seed  # chosen here so that it can be printed
    best = _TOP_K if top_k is None else top_k or None
    for number in range(samples):
        seed = (first + number) % 2**32 if number else first  # as rows of one batch
        with named_as_flags("max_new_tokens", "temperature", "top_p", "min_p", "seed"):
            stream = loaded.stream(
                prompt,
                max_new_tokens,
                temperature=temperature,
                top_k=best,
                top_p=top_p,
                min_p=min_p,
                seed=seed,
                stop=stop or [],
            )
        ending = _write_text(stream, prompt, "\n" * (number > 0))
        if ending == "unread":
            break
        parts = [f"{stream.tokens} tokens", f"{stream.tokens / max(stream.seconds, 1e-9):.0f} tokens/s"]
        parts += [] if temperature == 0 else [f"seed {seed}"]
        parts += [ending or f"ended by {_reason(stream.reason, loaded.config.context_length)}"]
        print(("\n  " if sys.stdout.isatty() else "  ") + " · ".join(parts), file=sys.stderr)
        if ending == "interrupted":
            raise SystemExit(130)  # the status of a program ended by Ctrl-C
    return stream


def _write_text(stream: Iterable[str], prompt: str, before: str) -> Literal["", "interrupted", "unread"]:
    """Write the prompt and its continuation while it is generated. "unread": the pipe was closed, as head does."""
    try:
        _write(before + (_prompt_in_dim(prompt) if sys.stdout.isatty() else without_controls(prompt)))
        for piece in stream:
            _write(without_controls(piece))
        _write("\n")
    except KeyboardInterrupt:
        _write("\n")
        return "interrupted"
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes stdout once more at exit
        if not isinstance(error, BrokenPipeError):
            raise ValueError(f"the text could not be written: {error.strerror}; write it elsewhere") from error
        return "unread"
    return ""


def _check_sampling(temperature: float, samples: int, options: dict[str, int | float | None]) -> None:
    """What can be refused before the model is loaded."""
    top_k = options["--top-k"]
    if top_k is not None and top_k < 0:
        raise ValueError(f"--top-k {top_k} must be at least 0; 0 samples from all tokens")
    if samples < 1:
        raise ValueError(f"--samples {samples} must be at least 1")
    for flag, value in (options | {"--samples": None if samples == 1 else samples}).items():
        if temperature == 0 and value is not None:
            raise ValueError(
                f"{flag} {value} has no effect with --temperature 0, which takes the most likely token; "
                "leave one of them out"
            )


def without_controls(text: str) -> str:
    r"""Text for a terminal: control characters, which could move the cursor, become �.

    >>> without_controls("a\x1b[2Jb")
    'a�[2Jb'
    """
    return UNPRINTABLE.sub("\ufffd", text)


def _prompt_in_dim(prompt: str) -> str:
    """The prompt is part of the text; dim, so that the generated part stands out."""
    text = without_controls(prompt)
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return text if plain else f"{_DIM}{text}{_PLAIN}"


def _write(text: str) -> None:
    out = styled(sys.stdout)
    out.write(text)
    out.flush()


def _reason(reason: str | None, context_length: int) -> str:
    return {
        "end": "its end token",
        "stop": "--stop",
        "length": "--max-new-tokens",
        "context": f"a full context of {context_length} tokens",
    }[reason or "length"]

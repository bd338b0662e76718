"""`regard generate "Once upon a time"`: text in the terminal, token by token.

The text alone goes to stdout, so that it can be piped; the statistics of the run go to stderr.
"""

from __future__ import annotations

import os
import random
import sys
from typing import Annotated, Any

import typer

from regard.commands.errors import flags_named
from regard.printable import UNPRINTABLE, styled

_TOP_K = 50  # unless --top-k is given
_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"


def generate(
    prompt: Annotated[str, typer.Argument(help="Text to continue.", show_default="an empty text")] = "",
    model: Annotated[
        str, typer.Option(help="Model directory or name on the Hugging Face hub; tiny is in the package.")
    ] = "tiny",
    max_new_tokens: Annotated[int, typer.Option(help="Maximum number of tokens to generate.")] = 200,
    temperature: Annotated[float, typer.Option(help="Sampling temperature. 0 takes the most likely token.")] = 0.8,
    top_k: Annotated[
        int | None, typer.Option(help="Sample from the k most likely tokens. 0 for all.", show_default="50")
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(help="Sample from the most likely tokens with this total probability.", show_default="off"),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Random seed. The same seed gives the same text.", show_default="random")
    ] = None,
    stop: Annotated[
        list[str] | None, typer.Option(help="Stop before this text. May be repeated.", show_default="none")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="Device: cpu, cuda, …", show_default="cuda if available, else cpu")
    ] = None,
) -> Any:
    """Generate text from a prompt."""
    _check_sampling(temperature, top_k, top_p, seed)
    from regard.commands.models import load_gpt

    with flags_named(device=device):
        loaded = load_gpt(model, device)
    seed = random.randrange(2**31) if seed is None else seed  # chosen here so that it can be printed
    best = _TOP_K if top_k is None else top_k or None
    with flags_named(max_new_tokens=max_new_tokens, temperature=temperature, top_p=top_p, seed=seed):
        stream = loaded.stream(
            prompt, max_new_tokens, temperature=temperature, top_k=best, top_p=top_p, seed=seed, stop=stop or []
        )
    on_terminal = sys.stdout.isatty()
    interrupted = False
    try:
        _write(_prompt_in_dim(prompt) if on_terminal else printable(prompt))
        for piece in stream:
            _write(printable(piece))
        _write("\n")
    except KeyboardInterrupt:
        interrupted = True
        _write("\n")
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes stdout once more at exit
        if not isinstance(error, BrokenPipeError):
            raise ValueError(f"the text could not be written: {error.strerror}; write it elsewhere") from error
        return stream  # the reader has closed the pipe, as head does
    reason = "interrupted" if interrupted else f"ended by {_reason(stream.reason, loaded.config.context_length)}"
    parts = [f"{stream.tokens} tokens", f"{stream.tokens / max(stream.seconds, 1e-9):.0f} tokens/s"]
    parts += [reason] if temperature == 0 else [f"seed {seed}", reason]
    print(("\n  " if on_terminal else "  ") + " · ".join(parts), file=sys.stderr)
    if interrupted:
        raise SystemExit(130)  # the status of a program ended by Ctrl-C
    return stream


def _check_sampling(temperature: float, top_k: int | None, top_p: float | None, seed: int | None) -> None:
    """What can be refused before the model is loaded."""
    if top_k is not None and top_k < 0:
        raise ValueError(f"--top-k {top_k} must be at least 0; 0 samples from all tokens")
    for flag, value in (("--top-k", top_k), ("--top-p", top_p), ("--seed", seed)):
        if temperature == 0 and value is not None:
            raise ValueError(
                f"{flag} {value} has no effect with --temperature 0, which takes the most likely token; "
                "leave one of them out"
            )


def printable(text: str) -> str:
    r"""Text for a terminal: control characters, which could move the cursor, become �.

    >>> printable("a\x1b[2Jb")
    'a�[2Jb'
    """
    return UNPRINTABLE.sub("\ufffd", text)


def _prompt_in_dim(prompt: str) -> str:
    """The prompt is part of the text; dim, so that the generated part stands out."""
    text = printable(prompt)
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

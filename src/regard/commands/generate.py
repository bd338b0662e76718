"""`regard generate "Once upon a time"`: text in the terminal, token by token.

The text alone goes to stdout, so that it can be piped; the statistics of the run go to stderr. The flags come from the
table in regard.gpt.generate.options.
"""

import os
import random
import sys
from collections.abc import Iterable
from dataclasses import fields
from inspect import Parameter, Signature
from typing import Annotated, Any, Literal

from regard.commands.shared.options import TINY, Model, argument, option
from regard.commands.terminal.progress import said_after_a_second
from regard.commands.terminal.usage import option_parameter
from regard.gpt.generate.options import GenerateOptions, SamplingOptions
from regard.gpt.option_table import flags_of
from regard.support.argument_names import as_flag, named_as_flags
from regard.support.printable import UNPRINTABLE, styled

_FLAGS = tuple(flags_of(GenerateOptions))
_TOP_K = 50  # unless --top-k is given
_REASONS = {"end": "its end token", "stop": "--stop", "length": "--max-new-tokens"}


def generate(prompt: str = "", model: str = TINY, device: str | None = None, **flags: Any) -> Any:
    """Generate text from a prompt."""
    options = {spec.name: spec.default for spec in _FLAGS} | flags
    samples, first = options.pop("samples"), options["seed"]
    _check_sampling(samples, options)
    with said_after_a_second("loading the model"), named_as_flags("device"):
        from regard.commands.shared.models import load_gpt

        loaded = load_gpt(model, device)
    first = random.randrange(2**31) if first is None else first  # chosen here so that it can be printed
    options["top_k"] = _TOP_K if options["top_k"] is None else options["top_k"] or None
    for number in range(samples):
        options["seed"] = seed = (first + number) % 2**32 if number else first  # as rows of one batch
        with named_as_flags(*options):
            stream = loaded.stream(prompt, **options)
        ending = _write_text(stream, prompt, "\n" * (number > 0))
        if ending == "unread":
            break
        parts = [f"{stream.tokens} tokens", f"{stream.tokens / max(stream.seconds, 1e-9):.0f} tokens/s"]
        parts += [] if options["temperature"] == 0 else [f"seed {seed}"]
        full = f"a full context of {loaded.config.context_length} tokens"
        parts += [ending or f"ended by {full if stream.reason == 'context' else _REASONS[stream.reason or 'length']}"]
        print(("\n  " if sys.stdout.isatty() else "  ") + " · ".join(parts), file=sys.stderr)
        if ending == "interrupted":
            raise SystemExit(130)  # the status of a program ended by Ctrl-C
    return stream


def _signature() -> Signature:
    prompt = Annotated[str, argument("Text to continue. [default: an empty text]", metavar="PROMPT")]
    device = Annotated[str | None, option("Device: cpu, cuda, … [default: cuda if available, else cpu]")]
    own = {"prompt": ("", prompt), "model": (TINY, Model), "device": (None, device)}
    *before, after = (
        Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (default, kind) in own.items()
    )
    return Signature([*before, *map(option_parameter, _FLAGS), after])


generate.__signature__ = _signature()  # type: ignore[attr-defined]


def _write_text(stream: Iterable[str], prompt: str, before: str) -> Literal["", "interrupted", "unread"]:
    """Write the prompt and its continuation as it comes. "unread": the reader has closed the pipe, as head does."""
    # On a terminal the prompt is dim, so that the generated part stands out.
    plain = not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    text = without_controls(prompt)
    try:
        _write(before + (text if plain else f"\x1b[2m{text}\x1b[0m"))
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


def _check_sampling(samples: int, options: dict[str, Any]) -> None:
    """What can be refused before the model is loaded."""
    top_k = options["top_k"]
    if top_k is not None and top_k < 0:
        raise ValueError(f"--top-k {top_k} must be at least 0; 0 samples from all tokens")
    if samples < 1:
        raise ValueError(f"--samples {samples} must be at least 1")
    random_only = {field.name for field in fields(SamplingOptions)} - {"temperature"} | {"seed", "samples"}
    for spec in _FLAGS:
        value = samples if spec.name == "samples" else options[spec.name]
        if spec.name in random_only and options["temperature"] == 0 and value != spec.default:
            reason = "has no effect with --temperature 0, which takes the most likely token; leave one of them out"
            raise ValueError(f"{as_flag(spec.name)} {value} {reason}")


def without_controls(text: str) -> str:
    r"""Text for a terminal: control characters, which could move the cursor, become �.

    >>> without_controls("a\x1b[2Jb")
    'a�[2Jb'
    """
    return UNPRINTABLE.sub("\ufffd", text)


def _write(text: str) -> None:
    out = styled(sys.stdout)
    out.write(text)
    out.flush()

"""`regard generate "Once upon a time"`: a text written in the terminal, as it comes.

The text goes to stdout and nothing else does, so it can be piped; what is said about it goes to stderr.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Sequence

import torch

from regard.gpt.checkpoint import model_directory
from regard.gpt.generate.generate import Stream
from regard.gpt.model import GPT
from regard.gpt.train.processes import find_device

DIM, PLAIN = "\x1b[2m", "\x1b[0m"


def run(
    prompt: str,
    *,
    model: str | None = None,
    max_new_tokens: int = 200,
    temperature: float | int = 0.8,
    top_k: int | None = 50,
    top_p: float | int | None = None,
    seed: int | None = None,
    stop: Sequence[str] = (),
    device: str | None = None,
) -> Stream:
    """Write a text to stdout, piece by piece, and on stderr how it went."""
    loaded = load(model, device)
    seed = random.randrange(2**31) if seed is None else seed  # one that can be named afterwards
    stream = loaded.stream(
        prompt, max_new_tokens, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, stop=list(stop)
    )
    seen = sys.stdout.isatty()
    interrupted = False
    try:
        # The prompt is part of the text; in a terminal it is dim, so that one sees what is new.
        plain = bool(os.environ.get("NO_COLOR"))
        _write(prompt if not seen else shown(prompt) if plain else f"{DIM}{shown(prompt)}{PLAIN}")
        for piece in stream:
            _write(shown(piece) if seen else piece)
        _write("\n")
    except KeyboardInterrupt:
        interrupted = True
        _write("\n")
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is still to be flushed
        if not isinstance(error, BrokenPipeError):
            raise ValueError(f"the text could not be written: {error.strerror}; write it elsewhere") from error
        return stream  # whoever read it has read enough, as head does
    chance = [] if temperature == 0 else [f"seed {seed}"]
    why = "interrupted" if interrupted else f"ended by {_reason(stream, loaded)}"
    said = [f"{stream.tokens} tokens", f"{stream.tokens / max(stream.seconds, 1e-9):.0f} tokens/s", *chance, why]
    print(("\n  " if seen else "  ") + " · ".join(said), file=sys.stderr)
    if interrupted:
        raise SystemExit(130)  # as after any Ctrl-C
    return stream


def load(model: str | None, device: str | None) -> GPT:
    """The model of a directory or name; without one, the model in the box."""
    on = find_device(device)
    # A CPU is quickest in float32, whatever the file holds.
    dtype = torch.float32 if on.type == "cpu" else None
    loaded = GPT.from_pretrained(model_directory.PACKAGED if model is None else model, device=on, dtype=dtype)
    if loaded.tokenizer is None:
        raise ValueError(f"{model} has no tokenizer.json, so no text can be read; put its tokenizer beside the weights")
    return loaded


def shown(text: str) -> str:
    r"""Text for a terminal: what would steer it, such as a cursor command, is shown as �.

    >>> shown("a\x1b[2Jb")
    'a�[2Jb'
    """
    return "".join("\ufffd" if (ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160 else c for c in text)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _reason(stream: Stream, model: GPT) -> str:
    return {
        "end": "its end token",
        "stop": "--stop",
        "length": "--max-new-tokens",
        "context": f"a full context of {model.config.context_length} tokens",
    }[stream.reason or "length"]

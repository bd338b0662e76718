"""Errors as a command says them: a value is named by the flag that a person typed, `--top-k -1` and not `top_k (-1)`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any


def as_flag(name: str) -> str:
    """An argument as a flag.

    >>> as_flag("max_new_tokens")
    '--max-new-tokens'
    """
    return "--" + name.replace("_", "-")


def name_flags(message: str, values: Mapping[str, Any]) -> str:
    """A message of a Python function with the flags of the command in place of its arguments.

    >>> name_flags("warmup (9) must be at most steps (7); try steps=9", {"warmup": 9, "steps": 7})
    '--warmup 9 must be at most --steps 7; try --steps 9'
    """
    for name, value in values.items():
        for shown in (f"{name} ({value})", f"{name} ({value!r})"):
            message = re.sub(rf"(?<![\w.-]){re.escape(shown)}", lambda _: f"{as_flag(name)} {value}", message)  # noqa: B023
        message = re.sub(rf"(?<![\w.-]){name}=(?=\w)", f"{as_flag(name)} ", message)
    return message


@contextmanager
def flags_named(**values: Any) -> Iterator[None]:
    """Inside this block, a ValueError names the flags instead of the arguments that have these values.

    >>> with flags_named(top_k=-1):
    ...     raise ValueError("top_k (-1) must be at least 1")
    Traceback (most recent call last):
    ValueError: --top-k -1 must be at least 1
    """
    try:
        yield
    except ValueError as error:
        message = name_flags(str(error), values)
        if message == str(error):
            raise
        raise ValueError(message) from error


def check_heads_flags(d_model: int, heads: int, *, width: str = "--d-model", count: str = "--heads") -> None:
    """The heads share the width evenly; the error names the flags `width` and `count`.

    >>> check_heads_flags(768, 7)
    Traceback (most recent call last):
    ValueError: --d-model 768 is not divisible by --heads 7; try --heads 6, 8 or 12
    """
    if d_model % heads:
        from regard.support.arguments import near_divisors

        choices = near_divisors(d_model, heads)
        raise ValueError(f"{width} {d_model} is not divisible by {count} {heads}; try {count} {choices}")

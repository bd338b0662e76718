"""Remedies: checks tell the flags of `regard check`; in Python and in a teacher's key the same is written differently."""

from __future__ import annotations

import re

_SET = re.compile(r"--set (\w+)=…")
_NAMES = re.compile(r"--names W_query=…,W_key=…,W_value=…,out_proj=…")


def in_python(text: str) -> str:
    """A sentence of a check with the arguments of `regard.check` in place of flags.

    >>> in_python("give a value: --set groove=…")
    "give a value: arguments={'groove': …}"
    """
    return _NAMES.sub(
        "names={'W_query': …, 'W_key': …, 'W_value': …, 'out_proj': …}", _SET.sub(r"arguments={'\1': …}", text)
    )


def in_key(text: str) -> str:
    """A sentence of a check with the entries of a key in place of flags.

    >>> in_key("give a value: --set groove=…")
    'give a value: groove = … under [arguments] in the key'
    """
    text = _SET.sub(r"\1 = … under [arguments] in the key", text)
    return _NAMES.sub("W_query = …, W_key = …, W_value = …, out_proj = … under [weights] in the key", text)

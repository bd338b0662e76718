"""Calls of the Rust library `tokenizers` that may panic.

A panic arrives in Python as a BaseException, which `except Exception` does not catch, and prints a backtrace to the
file descriptor of stderr. Here it becomes a ValueError, and what was printed with it is dropped.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress

from regard.support.printable import readable

_ONE_AT_A_TIME = threading.RLock()  # stderr belongs to the process


@contextmanager
def panics_refused(what: str, hold_stderr: bool = False) -> Iterator[None]:
    """Inside this block, an error of the Rust library or a panic is a ValueError that says `what` failed.

    >>> with panics_refused("the tokenizer cannot encode this text"):
    ...     raise Exception("WordPiece error: Missing [UNK] token from the vocabulary")
    Traceback (most recent call last):
    ValueError: the tokenizer cannot encode this text: WordPiece error: Missing [UNK] token from the vocabulary

    hold_stderr: hold back what anybody writes to stderr meanwhile, and drop it if there was a panic. For calls that may
    panic; it takes a tenth of a millisecond.
    """
    try:
        with _held_stderr() if hold_stderr else nullcontext():
            yield
    except BaseException as error:
        if type(error) is not Exception and not is_panic(error):  # tokenizers raises nothing narrower
            raise
        raise ValueError(f"{what}: {readable(error, 160)}") from None


def is_panic(error: BaseException) -> bool:
    """Is it a panic of a Rust library? Each has a class of its own for that, which cannot be imported."""
    return type(error).__name__ == "PanicException"


@contextmanager
def _held_stderr() -> Iterator[None]:
    with _ONE_AT_A_TIME, tempfile.TemporaryFile() as held:
        with suppress(Exception):
            sys.stderr.flush()
        try:
            stderr = os.dup(2)
        except OSError:  # the process has none
            yield
            return
        os.dup2(held.fileno(), 2)
        panicked = False
        try:
            yield
        except BaseException as error:
            panicked = is_panic(error)
            raise
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            held.seek(0)
            with suppress(OSError):
                os.write(2, b"" if panicked else held.read())

"""Heads as a person types them: 4.3 is head 3 of layer 4; and what heads that are cut hand over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


def read_head(head: str | None, layer: int | str | None) -> tuple[int | str | None, int | None]:
    """--head and --layer: a layer by number or name, and a head in it; 4.3, as tables name heads, is both.

    >>> read_head("4.3", None), read_head("3", "4"), read_head(None, "h.4.attn")
    ((4, 3), (4, 3), ('h.4.attn', None))
    """
    number = int(layer) if isinstance(layer, str) and layer.lstrip("-").isdigit() else layer
    if head is None:
        return number, None
    first, dot, last = head.rpartition(".")
    if not (last.isdigit() and (first.isdigit() or not dot)):
        raise ValueError(f"--head {head} must be a number, such as 3; or 4.3, head 3 of layer 4")
    if dot and number not in (None, int(first)):
        raise ValueError(f"--head {head} is of layer {first}, but --layer is {layer}; leave one of them out")
    if not dot and number is None:
        raise ValueError(f"--head {head} needs a layer to be in; add --layer 0, or write --head 0.{head}")
    return int(first) if dot else number, int(last)


def read_heads(flag: str, heads: str | None) -> list[tuple[int, int]] | None:
    """Several heads, each as tables name it.

    >>> read_heads("--heads", "0.2,4.3")
    [(0, 2), (4, 3)]
    """
    if heads is None:
        return None
    chosen = []
    for one in heads.split(","):
        layer, _, head = one.strip().partition(".")
        if not (layer.isdecimal() and head.isdecimal()):
            raise ValueError(f"{flag} {heads} must be heads, such as 4.3, head 3 of layer 4; or several: 4.3,0.2")
        chosen.append((int(layer), int(head)))
    return chosen


def read_to(to: str) -> int | str:
    """What a cut head hands over.

    >>> read_to("0"), read_to("mean")
    (0, 'mean')
    """
    if to not in ("0", "mean"):
        raise ValueError(f"--to {to} must be 0 or mean; other values in Python: to=… of regard.cut and regard.effect")
    return 0 if to == "0" else to


@contextmanager
def blamed_on(option: str) -> Iterator[None]:
    """Inside this block, an error says which option asked for a head or layer that does not exist.

    >>> with blamed_on("--cut 0.9"):
    ...     raise ValueError("head 9 does not exist")
    Traceback (most recent call last):
    ValueError: --cut 0.9: head 9 does not exist
    """
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from None

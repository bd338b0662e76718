"""Heads as a person types them: 4.3 is head 3 of layer 4; and what heads that are cut hand over."""

from __future__ import annotations


def read_heads(flag: str, heads: str | None) -> list[tuple[int, int]] | None:
    """Heads as tables name them.

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

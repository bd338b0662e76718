"""Drawing: how an object of regard looks as text and as HTML.

Objects know their numbers, regard.show knows how to draw them: it registers a function here for each type. That way the
code that measures does not depend on the code that draws.
"""

from __future__ import annotations

from functools import singledispatch
from typing import Any


@singledispatch
def as_text(thing: Any, width: int | None = None, **options: Any) -> str:
    """Draw the object as lines of at most `width` columns; those of the terminal unless given."""
    raise TypeError(f"regard.show has no text form of {type(thing).__name__}")


@singledispatch
def as_html(thing: Any) -> str:
    """Draw the object as HTML for a notebook, every string in it escaped."""
    raise TypeError(f"regard.show has no HTML form of {type(thing).__name__}")

"""Drawing: how an object of regard looks as text, as HTML, as a figure, as a page and as a widget.

Objects hold numbers; regard.show knows how to draw them and registers a function here for each type. That way the code
that measures does not depend on the code that draws. regard.show is imported when something is drawn for the first time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch
from importlib import import_module
from typing import Any


@singledispatch
def as_text(thing: Any, width: int | None = None, **options: Any) -> str:
    """Draw the object as lines of at most `width` columns; by default, the width of the terminal."""
    return str(_registered(as_text.dispatch, as_text.dispatch(object), thing)(thing, width, **options))


@singledispatch
def as_html(thing: Any) -> str:
    """Draw the object as HTML for a notebook, every string in it escaped."""
    return str(_registered(as_html.dispatch, as_html.dispatch(object), thing)(thing))


@singledispatch
def as_page(thing: Any, title: str = "", **options: Any) -> str:
    """Draw the object as one HTML document that opens offline."""
    return str(_registered(as_page.dispatch, as_page.dispatch(object), thing)(thing, title, **options))


@singledispatch
def as_widget(thing: Any, title: str = "") -> Any:
    """Draw the object as a widget for a notebook; needs anywidget."""
    return _registered(as_widget.dispatch, as_widget.dispatch(object), thing)(thing, title)


@singledispatch
def as_figure(thing: Any, **options: Any) -> Any:
    """Draw the object with matplotlib; returns the Axes."""
    return _registered(as_figure.dispatch, as_figure.dispatch(object), thing)(thing, **options)


def _registered(
    dispatch: Callable[[type], Callable[..., Any]], default: Callable[..., Any], thing: object
) -> Callable[..., Any]:
    """The function for this type after importing regard.show, which registers all of them."""
    import_module("regard.show")
    if (draw := dispatch(type(thing))) is default:
        raise TypeError(f"regard.show cannot draw a {type(thing).__name__}")
    return draw

"""Drawing: how an object of regard looks as text, as HTML, as a figure, as a page, as a widget, and in a notebook.

Objects hold numbers; regard.show knows how to draw them and registers a function here for each type. That way the code
that measures does not depend on the code that draws. regard.show is imported when something is first drawn.
"""

from __future__ import annotations

import html
import sys
from collections.abc import Callable
from functools import singledispatch
from importlib import import_module
from importlib.util import find_spec
from typing import Any

# Modules that register drawing functions. The school draws its own results, and loads no figures and pages for them.
_DRAWINGS = ("regard.show.drawings", "regard.school.drawing.verdicts")


@singledispatch
def as_text(thing: Any, width: int | None = None, **options: Any) -> str:
    """Draw the object as lines of at most `width` columns; by default, the width of the terminal."""
    return str(_registered(as_text, thing)(thing, width, **options))


@singledispatch
def as_html(thing: Any) -> str:
    """Draw the object as HTML for a notebook, every string in it escaped."""
    return str(_registered(as_html, thing)(thing))


@singledispatch
def as_page(thing: Any, title: str = "", **options: Any) -> str:
    """Draw the object as one HTML document that opens offline."""
    return str(_registered(as_page, thing)(thing, title, **options))


@singledispatch
def as_widget(thing: Any, title: str = "", **options: Any) -> Any:
    """Draw the object as a widget for a notebook; needs anywidget."""
    return _registered(as_widget, thing)(thing, title, **options)


@singledispatch
def as_live(model: Any) -> Any:
    """What a page needs to run the model itself; regard.gpt.live_model says what that is."""
    import_module("regard.gpt.live_model")
    if (function := as_live.dispatch(type(model))) is as_live.dispatch(object):
        name = type(model).__name__
        raise ValueError(f"a live page runs a regard.GPT and this is a {name}; load it with regard.GPT.from_pretrained")
    return function(model)


@singledispatch
def as_figure(thing: Any, **options: Any) -> Any:
    """Draw the object with matplotlib; returns the Axes."""
    return _registered(as_figure, thing)(thing, **options)


def _registered(draw: Any, thing: object) -> Callable[..., Any]:
    """The function for this type, after importing the modules that register one."""
    in_school = type(thing).__module__.startswith("regard.school.")
    for name in reversed(_DRAWINGS) if in_school else _DRAWINGS:
        import_module(name)
        function: Callable[..., Any] = draw.dispatch(type(thing))
        if function is not draw.dispatch(object):
            return function
    raise TypeError(f"regard.show cannot draw a {type(thing).__name__}")


class ShownAsWidget:
    """An object that a notebook shows as a widget, where it is the last line of a cell.

    Without anywidget, in a terminal, and in a viewer that runs no widgets, it is what it was: a table or a text.
    """

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """For IPython, which adds text/html and text/plain where they are not in the bundle."""
        if not _kernel_is_running() or find_spec("anywidget") is None:
            return None
        try:
            data, metadata = as_widget(self)._repr_mimebundle_(**options)
        except Exception as error:  # the report must be seen, whatever became of its widget
            return {"text/html": _html(self, _reason(error)), "text/plain": f"{self!r}\n  {_reason(error)}"}, {}
        replaced = {"text/plain", "image/png"} if hasattr(self, "_repr_html_") else {"text/plain"}
        return {kind: content for kind, content in data.items() if kind not in replaced}, metadata

    def _display_(self) -> Any:
        """For marimo, which shows what this returns."""
        if find_spec("anywidget") is None:
            return _Still(_html(self))
        try:
            return as_widget(self)
        except Exception as error:
            return _Still(_html(self, _reason(error)))


class _Still:
    """HTML for marimo, whose tables have no space between columns."""

    def __init__(self, content: str) -> None:
        self._content = content

    def _repr_html_(self) -> str:
        space = "<style>.regard-still :is(td, th) { padding: 1px 8px; text-align: right; }</style>"
        return f'{space}<div class="regard-still">{self._content}</div>'


def _kernel_is_running() -> bool:
    """Does this code run in a notebook's kernel? In a terminal, IPython has none."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and getattr(ipython.get_ipython(), "kernel", None) is not None


def _html(thing: Any, reason: str = "") -> str:
    content = thing._repr_html_() if hasattr(thing, "_repr_html_") else f"<pre>{html.escape(repr(thing))}</pre>"
    return f"{content}<p>{html.escape(reason)}</p>" if reason else str(content)


def _reason(error: Exception) -> str:
    """Why there is no widget, in one line."""
    return f"Without a widget: {' '.join(str(error).split()) or type(error).__name__}"

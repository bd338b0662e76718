"""How an object finds the function that draws it."""

import subprocess
import sys
import types

import pytest

import regard.support.drawing
from regard.support.drawing import ShownAsWidget, as_figure, as_html, as_text, as_widget


class Thing:
    pass


def test_a_registered_function_draws_its_type_and_gets_the_options():
    as_text.register(Thing, lambda thing, width=None, **options: f"{width} {options}")
    as_html.register(Thing, lambda thing: "<p>thing</p>")
    as_figure.register(Thing, lambda thing, **options: [thing, options])
    assert as_text(Thing(), 37, layer=2) == "37 {'layer': 2}"
    assert as_html(Thing()) == "<p>thing</p>"
    thing = Thing()
    assert as_figure(thing, ax=5) == [thing, {"ax": 5}]


@pytest.mark.parametrize("draw", [as_text, as_html, as_figure])
def test_what_nobody_draws_is_refused_by_its_type(draw):
    with pytest.raises(TypeError, match=r"regard\.show cannot draw a complex"):
        draw(3j)


def test_show_is_imported_when_something_is_drawn_and_not_before():
    code = """
import sys
from regard.support.drawing import as_text
before = "regard.show" in sys.modules
class Late: pass
def load(name):
    as_text.register(Late, lambda thing, width=None: f"drawn by {name}")
import regard.support.drawing
regard.support.drawing.import_module = load
print(before, as_text(Late()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False drawn by regard.show.drawings\n"


class Shown(ShownAsWidget):
    """Something with a table."""

    def __repr__(self):
        return "a table"

    def _repr_html_(self):
        return "<table>"


class ShownAsText(ShownAsWidget):
    """Something without one."""

    def __repr__(self):
        return "a < b"


class SomeWidget:
    def _repr_mimebundle_(self, **options):
        return {"text/plain": "a widget", "image/png": "picture", "application/widget": {"id": 5}}, {"wide": True}


def fail(thing, title=""):
    raise ValueError("the page needs\n  queries and keys")


@pytest.fixture
def kernel(monkeypatch):
    """A notebook in which anywidget is installed; the widget of everything above is SomeWidget."""
    shell = types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setattr(regard.support.drawing, "find_spec", lambda name: object())
    for kind in (Shown, ShownAsText):
        as_widget.register(kind, lambda thing, title="": SomeWidget())
    return shell


def test_a_notebook_gets_the_widget_and_adds_the_table_itself(kernel):
    assert Shown()._repr_mimebundle_(include=None, exclude=None) == ({"application/widget": {"id": 5}}, {"wide": True})


def test_what_has_no_table_keeps_the_picture_of_its_widget(kernel):
    data, _ = ShownAsText()._repr_mimebundle_()
    assert data == {"application/widget": {"id": 5}, "image/png": "picture"}


@pytest.mark.parametrize("shell", [None, types.SimpleNamespace()])
def test_a_terminal_gets_no_bundle(kernel, monkeypatch, shell):
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    assert Shown()._repr_mimebundle_() is None


def test_without_ipython_or_anywidget_there_is_no_bundle(kernel, monkeypatch):
    monkeypatch.setattr(regard.support.drawing, "find_spec", lambda name: None)
    assert Shown()._repr_mimebundle_() is None
    assert '<div class="regard-still"><table></div>' in Shown()._display_()._repr_html_()
    assert '<div class="regard-still"><pre>a &lt; b</pre></div>' in ShownAsText()._display_()._repr_html_()
    monkeypatch.setattr(regard.support.drawing, "find_spec", lambda name: object())
    monkeypatch.delitem(sys.modules, "IPython")
    assert Shown()._repr_mimebundle_() is None


def test_a_widget_that_fails_leaves_the_table_and_a_line_that_says_why(kernel):
    as_widget.register(Shown, fail)
    why = "Without a widget: the page needs queries and keys"
    data, metadata = Shown()._repr_mimebundle_()
    assert data == {"text/html": f"<table><p>{why}</p>", "text/plain": f"a table\n  {why}"}
    assert metadata == {}
    assert f"<table><p>{why}</p>" in Shown()._display_()._repr_html_()


def test_marimo_gets_the_widget_without_a_kernel_of_ipython(kernel, monkeypatch):
    monkeypatch.delitem(sys.modules, "IPython")
    assert isinstance(Shown()._display_(), SomeWidget)


def test_a_verdict_is_drawn_without_loading_figures_and_pages():
    code = """
import sys
from regard.school.check.verdict import Verdict
from regard.support.drawing import as_text
print(as_text(Verdict("Mine", "attention")).strip())
print([name for name in sys.modules if name.startswith(("regard.show.figures", "regard.show.page"))])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "✓ Mine is right: attention\n[]\n"

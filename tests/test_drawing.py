"""How an object finds the function that draws it."""

import subprocess
import sys

import pytest

from regard.drawing import as_figure, as_html, as_text


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
from regard.drawing import as_text
before = "regard.show" in sys.modules
class Late: pass
def load(name):
    as_text.register(Late, lambda thing, width=None: f"drawn by {name}")
import regard.drawing
regard.drawing.import_module = load
print(before, as_text(Late()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False drawn by regard.show\n"

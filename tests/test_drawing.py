"""Drawing: objects are drawn by the function that regard.show registered for their type."""

import pytest

from regard.drawing import as_html, as_text


class Thing:
    """Something that nobody draws."""


def test_what_nobody_draws_says_its_type():
    with pytest.raises(TypeError, match=r"regard\.show has no text form of Thing"):
        as_text(Thing())
    with pytest.raises(TypeError, match=r"regard\.show has no HTML form of Thing"):
        as_html(Thing())


def test_a_registered_function_gets_the_width_and_the_options():
    class Drawn(Thing):
        pass

    @as_text.register
    def _(thing: Drawn, width=None, **options):
        return f"{type(thing).__name__} {width} {options}"

    assert as_text(Drawn(), 80, all=True) == "Drawn 80 {'all': True}"

"""The colours of figures are those of the page."""

import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib import colors as mpl

import regard
from regard.heads.report.roles import NAMES
from regard.show.figures import colors

PAGE = Path(regard.__file__).parent / "show" / "page"


def page_colors(block):
    return {float(at): color for at, color in re.findall(r"\[?(-?[\d.]+)\]?: \"(#\w{6})\"", block)}


def test_anchors_are_those_of_the_page():
    script = (PAGE / "js" / "color.js").read_text()
    assert f"const POWER = {colors.POWER};" in script
    assert page_colors(re.search(r"ANCHORS = \{\s*light: \{(.*?)\}", script, re.DOTALL)[1]) == colors.WEIGHTS
    assert page_colors(re.search(r"SIGNED = \{\s*light: \{(.*?)\}", script, re.DOTALL)[1]) == colors.SIGNED


def test_colors_of_roles_are_those_of_the_page():
    style = (PAGE / "page.css").read_text()
    for role in NAMES:
        assert f"--{role.split()[0]}: {colors.ROLES[role]};" in style


@pytest.mark.parametrize(
    ("scale", "anchors"), [(colors.weight_scale(), colors.WEIGHTS), (colors.signed_scale(7.0), colors.SIGNED)]
)
def test_a_number_has_the_color_that_is_named_for_it(scale, anchors):
    most = scale["norm"].vmax
    for at, color in anchors.items():
        drawn = scale["cmap"](scale["norm"](most * at))
        np.testing.assert_allclose(drawn[:3], mpl.to_rgb(color), atol=0.03)


def test_a_masked_cell_has_no_color_and_zero_has_one():
    scale = colors.weight_scale()
    drawn = scale["cmap"](scale["norm"](np.ma.array([0.0, 0.0], mask=[True, False])))
    assert drawn[:, 3].tolist() == [0.0, 1.0]


def test_amounts_are_even_from_zero_also_where_all_are_zero():
    assert float(colors.amount_scale(8.0)["norm"](2.0)) == 0.25
    assert float(colors.amount_scale(0.0)["norm"](0.0)) == 0.0


def test_ink_can_be_read_on_its_color():
    assert [colors.ink_on(mpl.to_rgb(color)) for color in colors.WEIGHTS.values()] == ["#000000"] * 4 + ["#ffffff"] * 2


def test_a_tint_is_between_white_and_the_color():
    assert colors.tint("#000000", 0.25).tolist() == [0.75, 0.75, 0.75]

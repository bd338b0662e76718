"""The colours of the page as scales of matplotlib."""

import numpy as np
import pytest
from matplotlib import colors as mpl

from regard.show.figures import colors


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

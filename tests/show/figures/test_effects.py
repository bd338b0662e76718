"""Effects in one figure."""

from dataclasses import replace

import numpy as np

from heads.measured import measured
from regard.heads.change.effects import Effects


def test_every_head_is_a_cell_coloured_by_its_cost():
    all_cuts = measured()
    heads = replace(all_cuts, cuts=all_cuts.cuts[:2], changes=[one[:2] for one in all_cuts.changes])
    axes = Effects(heads).plot()
    values = axes.collections[0].get_array().reshape(2, 3)
    np.testing.assert_array_equal(values.mask, [[True, False, True], [False, True, True]])
    assert (values[0, 1], values[1, 0]) == (0.5, 2.0)
    assert sorted(text.get_text() for text in axes.texts) == ["+0.50", "+2.00"]
    assert axes.get_title(loc="left") == "growth of the loss per token (nats)"


def test_other_cuts_are_bars_the_largest_cost_first():
    axes = Effects(measured(texts=2)).plot()
    assert [bar.get_width() for bar in axes.patches] == [3.0, 0.75, 0.0, -1.5]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["1.0", "0.1", "0.1+1.2", "layer 1"]

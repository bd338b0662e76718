"""Heads as a person types them."""

import pytest

from regard.commands.head_names import read_heads, read_to


def test_heads_are_layer_and_head():
    assert read_heads("--cut", "0.2, 11.3") == [(0, 2), (11, 3)]
    assert read_heads("--cut", None) is None


@pytest.mark.parametrize("typed", ["3", "a.b", "4.3,", "-1.2", "4.3.1"])
def test_other_names_are_refused_with_the_flag(typed):
    with pytest.raises(ValueError, match=rf"--cut {typed} must be heads, such as 4\.3, head 3 of layer 4"):
        read_heads("--cut", typed)


def test_a_cut_head_hands_over_0_or_its_mean():
    assert (read_to("0"), read_to("mean")) == (0, "mean")
    with pytest.raises(ValueError, match="--to median must be 0 or mean"):
        read_to("median")

import pytest
import torch

from regard.school.check.compare.visible_patterns import follows_pattern

BACK = torch.arange(7)[:, None] - torch.arange(7)[None, :]


@pytest.mark.parametrize(
    ("visible", "attributes"),
    [
        (BACK.abs() <= 2, {"radius": 2}),
        ((BACK < 3) & (BACK >= 0), {"window_size": 3}),
        (BACK % 3 == 0, {"stride": 3}),
        (torch.arange(7)[:, None] // 2 == torch.arange(7)[None, :] // 2, {"block": 2}),
    ],
)
def test_a_pattern_follows_from_a_number_that_is_named_after_it(visible, attributes):
    assert follows_pattern(visible, attributes, "")
    assert not follows_pattern(visible, {name: n + 5 for name, n in attributes.items()}, "")
    assert not follows_pattern(visible, {"num_heads": next(iter(attributes.values()))}, "")


def test_a_layer_that_must_hide_the_future_follows_no_pattern_that_shows_it():
    assert not follows_pattern(BACK.abs() <= 2, {"radius": 2}, "", must_hide=True)
    assert not follows_pattern(BACK.abs() <= 2, {"radius": 2}, "causal window")
    assert follows_pattern((BACK <= 2) & (BACK >= 0), {"radius": 2}, "", must_hide=True)

"""A quantile of the sketch is within its stated error of the exact one."""

import math

import pytest
import torch

from regard.heads.atlas.sketch import BINS, RELATIVE_ERROR, WEIGHT_ERROR, bins_of, middles, quantile

SHARES = (0.0, 0.01, 0.1, 0.25, 0.5, 0.77, 0.9, 0.99, 1.0)


def exact(values, share):
    """The smallest value that this share of all does not exceed."""
    ordered = values.sort().values
    return float(ordered[max(1, math.ceil(share * len(ordered))) - 1])


def draws(name):
    """Values as heads have them: spread, near an end, of many sizes, and all alike."""
    some = torch.rand(2003, dtype=torch.float64)
    if name == "sink":
        return [some, some**9, 1 - some**9, torch.full((7,), 0.3, dtype=torch.float64), torch.tensor([0.0, 1.0])]
    return [some * 7, (some * 25).exp2() * 0.001, torch.full((5,), 3.7, dtype=torch.float64), 1000 * some]


@pytest.mark.parametrize("name", ["sink", "entropy", "distance"])
@pytest.mark.parametrize("share", SHARES)
def test_a_quantile_is_as_near_as_is_stated(name, share):
    for values in draws(name):
        found = quantile(name, bins_of(name, values).bincount(minlength=BINS), share)
        allowed = WEIGHT_ERROR if name == "sink" else RELATIVE_ERROR * exact(values, share)
        assert abs(found - exact(values, share)) <= allowed + 1e-9


def test_the_stated_errors_are_these():
    assert WEIGHT_ERROR == 1 / 512
    assert RELATIVE_ERROR < 0.042


def test_what_is_smaller_than_the_first_bin_is_0():
    assert quantile("entropy", bins_of("entropy", torch.tensor([0.0, 1e-9, 9e-4])).bincount(minlength=BINS), 1.0) == 0


def test_every_middle_is_in_its_own_bin():
    for name in ("previous", "entropy"):
        assert bins_of(name, middles(name)).tolist() == list(range(BINS))


def test_without_values_there_is_no_quantile_and_a_share_is_between_0_and_1():
    assert math.isnan(quantile("sink", torch.zeros(BINS, dtype=torch.long), 0.5))
    with pytest.raises(ValueError, match=r"share between 0 and 1, such as 0\.5 for the median; this is 50"):
        quantile("sink", torch.zeros(BINS, dtype=torch.long), 50)

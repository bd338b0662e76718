"""The dtype that attention is computed in."""

import pytest
import torch

from regard.attention import precision


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bits_become_float32_and_others_stay(dtype):
    t = torch.randn(3, 5)
    assert torch.equal(precision.at_least_float32(t.to(dtype)), t.to(dtype).float())
    assert precision.at_least_float32(t) is t
    assert precision.at_least_float32(t.double()).dtype is torch.float64


def test_only_emulated_dtypes_on_a_cpu_are_computed_in_float32(monkeypatch):
    monkeypatch.setattr(precision, "EMULATED", frozenset({torch.bfloat16}))
    half, brain = torch.zeros(3, dtype=torch.float16), torch.zeros(3, dtype=torch.bfloat16)
    assert precision.in_float32_if_emulated(half) is half
    assert precision.in_float32_if_emulated(brain).dtype is torch.float32
    on_meta = brain.to("meta")
    assert precision.in_float32_if_emulated(on_meta) is on_meta


def test_autocast_is_off_inside_the_block():
    x = torch.randn(3, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with precision.without_autocast(x):
            assert (x @ x.mT).dtype is torch.float32
        assert (x @ x.mT).dtype is torch.bfloat16

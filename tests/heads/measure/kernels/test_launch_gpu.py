"""The Triton kernels on a GPU, in every type, against the definitions in float64 on the CPU."""

import math

import pytest
import torch

from heads import dense
from heads.dense import random_call
from heads.made_calls import made_call, moved_call
from heads.measure.test_statistics import masks
from regard import alibi_slopes, causal
from regard.heads.measure import statistics
from regard.heads.measure.registry import DEFAULT

pytestmark = pytest.mark.gpu
EVERY = frozenset(DEFAULT)


def check(call, rtol=2e-4, atol=2e-4):
    found = {name: value.cpu() for name, value in statistics.measure(moved_call(call, "cuda"), EVERY).items()}
    right = dense.measure(call, EVERY)
    assert set(found) == set(right)
    close = {"rtol": rtol, "atol": atol, "equal_nan": True, "check_dtype": False}
    for name in right:
        if name == "largest_key":
            p, known = dense.probabilities(call), right[name] >= 0
            assert torch.equal(found[name] >= 0, known)
            here = p.gather(-1, found[name].clamp(min=0)[..., None])[..., 0]
            torch.testing.assert_close(here[known], right["largest"][known], **close)
        else:
            torch.testing.assert_close(found[name], right[name], **close, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("T, S", [(1, 1), (7, 13), (64, 64), (129, 131), (192, 192), (1, 67), (1088, 1088)], ids=str)
@pytest.mark.parametrize("name", list(masks(2, 5, 5)))
def test_masks_and_shapes(T, S, name):
    torch.manual_seed(T + S)
    call = random_call(2, 3, T, S, 64, mask=masks(2, T, S)[name], tokens=torch.randint(0, 50, (2, S)))
    check(
        made_call(
            "",
            q=call.attention.q.bfloat16(),
            k=call.attention.k.bfloat16(),
            scale=0.125,
            mask=call.attention.mask,
            tokens=call.origin.tokens,
        )
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("H, Hkv", [(4, 4), (6, 2), (3, 1)], ids=str)
@pytest.mark.parametrize("D", [8, 13, 64, 96, 128, 256])
def test_types_widths_and_shared_keys(dtype, H, Hkv, D):
    call = random_call(2, H, 193, 193, D, Hkv)
    check(
        made_call(
            "", q=call.attention.q.to(dtype), k=call.attention.k.to(dtype), scale=call.attention.scale, mask=causal()
        )
    )


@pytest.mark.parametrize("shape", [(2, 3, 130, 131), (1, 3, 1, 131), (2, 1, 130, 1), (130, 131)], ids=str)
def test_what_is_added_to_scores(shape):
    bias = torch.randn(shape).masked_fill(torch.rand(shape) > 0.8, -math.inf)
    check(random_call(2, 3, 130, 131, 16, bias=bias, mask=causal()))
    check(random_call(2, 4, 130, 131, 16, alibi=alibi_slopes(4)))


def test_the_same_bits_every_time():
    call = moved_call(random_call(2, 3, 2049, 2049, 64, mask=causal()), "cuda")
    first = statistics.measure(call, EVERY)
    for _ in range(5):
        again = statistics.measure(call, EVERY)
        for name in first:
            torch.testing.assert_close(first[name], again[name], rtol=0, atol=0, equal_nan=True)

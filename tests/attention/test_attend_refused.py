"""What attend() refuses, each with the rule, the values and the remedy."""

import pytest
import torch

from helpers import random_qkv, says_it_ourselves
from regard import attend, attend_in_steps, causal, padding


@pytest.mark.parametrize("mask", [None, causal()], ids=["nothing hidden", "causal"])
def test_heads_that_cannot_be_shared_evenly_say_what_would(mask):
    q, k, v = random_qkv(B=2, H=3, T=5, S=5, D=8, Hkv=2)
    with pytest.raises(
        ValueError, match=r"3 query heads cannot share 2 key heads evenly; make num_heads a multiple of 2"
    ):
        attend(q, k, v, mask=mask)


@says_it_ourselves
@pytest.mark.parametrize("mask", [None, causal()], ids=["nothing hidden", "causal"])
def test_keys_of_another_batch_or_width_are_refused(mask):
    q, k, v = random_qkv(B=2, H=3, T=5, S=5, D=8)
    with pytest.raises(ValueError, match=r"q is \(2, 3, 5, 8\) and k is \(2, 3, 5, 7\); .* width must be the same"):
        attend(q, k[..., :7], v[..., :7], mask=mask)
    with pytest.raises(ValueError, match=r"q is \(2, 3, 5, 8\) and k is \(1, 3, 5, 8\); batch .* must be the same"):
        attend(q, k[:1], v[:1], mask=mask)


@says_it_ourselves
@pytest.mark.parametrize("mask", [None, causal(), padding([5, 5])], ids=["nothing hidden", "causal", "padding"])
def test_fewer_values_than_keys_are_refused(mask):
    q, k, v = random_qkv(B=2, H=3, T=5, S=5, D=8)
    with pytest.raises(ValueError, match=r"\(2, 3, 5, 8\).*v is \(2, 3, 3, 8\)"):
        attend(q, k, v[:, :, :3].clone(), mask=mask)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dropout": 1.5}, r"dropout \(1.5\) must be at least 0 and below 1"),
        ({"alibi": torch.ones(5)}, r"alibi has shape \(5,\) but there are 3 heads; use alibi_slopes\(3\)"),
        ({"scale": -1.0}, r"scale \(-1.0\) must be above 0"),
    ],
    ids=["dropout", "alibi", "scale"],
)
def test_options_out_of_range_are_refused(options, words, without_shape_checks):
    with pytest.raises(ValueError, match=words):
        attend(*random_qkv(B=2, H=3, T=5, S=5, D=8), mask=causal(), **options)


def test_tensors_without_heads_are_refused(without_shape_checks):
    x = torch.randn(2, 5, 8)
    with pytest.raises(ValueError, match=r"q, k and v must be \(B, H, T, D\), but have 3, 3 and 3 axes"):
        attend(x, x, x, mask=causal())


@says_it_ourselves
@pytest.mark.parametrize("function", [attend, attend_in_steps])
def test_what_is_no_tensor_is_refused_by_name(function):
    q, k, v = random_qkv(B=2, H=3, T=5, S=5, D=8)
    with pytest.raises(ValueError, match=r"k must be a tensor, not ndarray; pass torch\.as_tensor\(k\)"):
        function(q, k.numpy(), v)

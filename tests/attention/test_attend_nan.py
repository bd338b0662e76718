"""A NaN or infinity in q, k or v: every route of attend() gives what the formula gives, NaN for NaN."""

import math
import sys
from functools import partial

import pytest
import torch

from helpers import paths_taken, random_qkv, with_gradients
from regard import alibi_slopes, attend, attend_in_steps, causal, dense, documents, padding, window

fast = sys.modules[attend.__module__]
LEFT = padding(torch.tensor([[False, False, True, True, True], [True] * 5]))
# name: (mask, T, S, the route it takes)
MASKS = {
    "nothing hidden": (None, 3, 5, "fused"),
    "one query": (None, 1, 19, "fused"),
    "one query, causal window": (causal() & window(5), 1, 13, "fused"),
    "many keys": (None, 7, 67, "fused"),
    "causal": (causal(), 5, 5, "fused causal"),
    "causal 67": (causal(), 67, 67, "fused causal"),
    "lengths": (padding([7, 3]), 5, 7, "fused, key mask"),
    "causal, left padded": (causal() & LEFT, 5, 5, "fused causal, key mask"),
    "causal window": (causal() & window(2), 17, 17, "banded"),
    "window, lengths": (window(2) & padding([17, 11]), 17, 17, "banded"),
    "fewer queries": (causal(), 5, 11, "tiled"),
    "documents": (causal() & documents(torch.arange(13) // 5), 13, 13, "tiled"),
    "dense": (dense(torch.tensor([[True, False, True], [False, False, False]])), 2, 3, "tiled"),
}
# where it sits: the tensor and its index; a row is a query, a key or a value as a whole
PLACES = {
    "an element of q": (0, (0, 1, 0, 2)),
    "a row of q": (0, (0, 1, -1)),
    "all of q": (0, ()),
    "an element of k": (1, (0, 1, 0, 2)),
    "a row of k": (1, (0, 0, -1)),
    "all of k": (1, ()),
    "an element of v": (2, (0, 1, 0, 2)),
    "a row of v": (2, (0, 0, -1)),
}
BAD = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
CLOSE = {torch.float64: 1e-9, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def with_bad(place, bad, T, S, dtype, Hkv=2):
    qkv = [t.clone() for t in random_qkv(B=2, H=4, T=T, S=S, D=8, Hkv=Hkv, dtype=dtype)]
    which, index = PLACES[place]
    qkv[which][index] = BAD[bad]
    return qkv


def check(found, wanted, dtype):
    torch.testing.assert_close(found, wanted, rtol=CLOSE[dtype], atol=CLOSE[dtype], equal_nan=True)


@pytest.mark.parametrize("dtype", CLOSE, ids=str)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("mask", MASKS)
def test_a_nan_or_infinity_is_what_it_is_in_the_formula(mask, place, dtype):
    rule, T, S, route = MASKS[mask]
    for bad in BAD:
        qkv = with_bad(place, bad, T, S, dtype)
        with paths_taken() as taken:
            found = attend(*qkv, mask=rule)
        assert taken == [route]
        check(found, attend_in_steps(*qkv, mask=rule)[0], dtype)


@pytest.mark.parametrize("place", ["an element of q", "all of k", "a row of v"])
@pytest.mark.parametrize("mask", ["nothing hidden", "causal", "lengths", "documents"])
def test_so_it_is_with_slopes_and_in_gradients(mask, place):
    rule, T, S, _ = MASKS[mask]
    qkv = with_bad(place, "nan", T, S, torch.float64, Hkv=4)
    slopes = alibi_slopes(4).double()
    check(attend(*qkv, mask=rule, alibi=slopes), attend_in_steps(*qkv, mask=rule, alibi=slopes)[0], torch.float64)
    found = with_gradients(lambda *qkv: attend(*qkv, mask=rule), *qkv)
    wanted = with_gradients(lambda *qkv: attend_in_steps(*qkv, mask=rule)[0], *qkv)
    assert [t.isnan().any() for t in found] == [t.isnan().any() for t in wanted]
    check(found[0], wanted[0], torch.float64)


def check_without_python(function, mask):
    """Of what a kernel leaks, a transform or a graph may give too many NaN; never too few, and no other number."""
    rule, T, S, route = MASKS[mask]
    for place in PLACES:
        qkv = with_bad(place, "nan", T, S, torch.float32)
        found, wanted = function(*qkv), attend_in_steps(*qkv, mask=rule)[0]
        may_leak = place.endswith(" of v") or (route in ("banded", "tiled") and place.endswith("k"))
        check(torch.where(found.isnan() & may_leak, wanted, found), wanted, torch.float32)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("mask", MASKS)
def test_a_transform_that_hides_values_from_python_gives_the_same(mask):
    mapped = torch.func.vmap(partial(attend, mask=MASKS[mask][0]))
    check_without_python(lambda *qkv: mapped(*(t[None] for t in qkv))[0], mask)


@pytest.mark.compiled
@pytest.mark.parametrize("mask", ["nothing hidden", "causal", "lengths", "causal, left padded", "dense"])
def test_a_compiled_graph_gives_the_same(mask):
    check_without_python(
        torch.compile(partial(attend, mask=MASKS[mask][0]), fullgraph=True, dynamic=mask == "dense" or None), mask
    )


def test_finite_inputs_whose_context_is_zero_stay_on_their_route(monkeypatch):
    """Zeros alone are no reason to compute the formula, whose weights take T × S."""
    monkeypatch.setattr(fast, "attend_in_tiles", None)
    q, k, v = random_qkv(B=2, H=3, T=5, S=5, D=8)
    assert torch.equal(attend(q, k, 0 * v, mask=causal()), torch.zeros_like(q))


def test_scores_that_are_too_large_for_the_dtype_are_nan_as_in_the_formula():
    q, k, v = random_qkv(B=1, H=2, T=3, S=5, D=8, dtype=torch.float32)
    q[:, :, 1], k[...] = 1e30, -1e30
    check(attend(q, k, v), attend_in_steps(q, k, v)[0], torch.float32)
    assert attend(q, k, v)[:, :, 1].isnan().all()

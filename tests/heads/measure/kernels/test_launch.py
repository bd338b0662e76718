"""The Triton kernels against the definitions in float64: run by Triton's interpreter, without a GPU.

    TRITON_INTERPRET=1 pytest, the third command of `make test`

Triton reads that word once, when it is first imported, so these tests have a process of their own.
"""

import math
import os

import pytest
import torch

from heads import dense
from heads.dense import random_call
from heads.made_calls import made_call
from heads.measure.test_statistics import masks
from regard import alibi_slopes, causal
from regard.attention.call import QK
from regard.attention.masks import Everything
from regard.heads.measure import statistics
from regard.heads.measure.kernels.kernel_mask import mask_for_kernels
from regard.heads.measure.registry import DEFAULT, TARGETS

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs TRITON_INTERPRET=1", allow_module_level=True)
gpu = pytest.importorskip("regard.heads.measure.kernels.launch")
CLOSE = {"rtol": 3e-5, "atol": 3e-5, "equal_nan": True, "check_dtype": False}
EVERY = frozenset(DEFAULT)
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter's numpy meets infinities


@pytest.fixture
def in_triton(monkeypatch):
    """Let the statistics go through the interpreted kernels."""
    monkeypatch.setattr(
        statistics, "_in_triton", lambda call: call.attention if isinstance(call.attention, QK) else None
    )


def check(call):
    found, right = statistics.measure(call, EVERY), dense.measure(call, EVERY)
    assert set(found) == set(right)
    for name in right:
        if name == "largest_key":
            p = dense.probabilities(call)
            known = right[name] >= 0
            assert torch.equal(found[name] >= 0, known)
            here = p.gather(-1, found[name].clamp(min=0)[..., None])[..., 0]
            torch.testing.assert_close(here[known], right["largest"][known], **CLOSE)
        else:
            torch.testing.assert_close(found[name], right[name], **CLOSE, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.usefixtures("in_triton")
@pytest.mark.parametrize("T, S", [(7, 13), (70, 70), (1, 67)], ids=str)
@pytest.mark.parametrize("name", list(masks(2, 5, 5)))
def test_the_kernels_compute_the_definitions(T, S, name):
    torch.manual_seed(T + S)
    check(random_call(2, 3, T, S, 8, mask=masks(2, T, S)[name], tokens=torch.randint(0, 5, (2, S))))


@pytest.mark.usefixtures("in_triton")
@pytest.mark.parametrize("H, Hkv", [(4, 2), (3, 1)], ids=str)
@pytest.mark.parametrize("D", [8, 13, 96, 128])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_shared_keys_widths_and_types(H, Hkv, D, dtype):
    call = random_call(2, H, 67, 67, D, Hkv)
    check(
        made_call(
            "", q=call.attention.q.to(dtype), k=call.attention.k.to(dtype), scale=call.attention.scale, mask=causal()
        )
    )


@pytest.mark.usefixtures("in_triton")
@pytest.mark.parametrize("shape", [(2, 3, 11, 13), (1, 3, 1, 13), (2, 1, 11, 1), (11, 13)], ids=str)
def test_what_is_added_to_scores(shape):
    bias = torch.randn(shape).masked_fill(torch.rand(shape) > 0.8, -math.inf)
    check(random_call(2, 3, 11, 13, 7, bias=bias, mask=causal()))
    check(random_call(2, 4, 11, 13, 7, alibi=alibi_slopes(4)))


@pytest.mark.usefixtures("in_triton")
def test_padded_queries_and_keys_apart_in_memory():
    real = torch.tensor([[True] * 40 + [False] * 30, [True] * 70])
    packed = torch.randn(2, 70, 3, 3, 8)
    q, k = packed[:, :, 0].transpose(1, 2), packed[:, :, 1].transpose(1, 2)
    check(made_call("", q=q, k=k, scale=0.3, real=real, mask=causal()))


@pytest.mark.usefixtures("in_triton")
def test_padded_queries_may_be_nan():
    real = torch.tensor([[True] * 100 + [False] * 31, [True] * 131])
    call = random_call(2, 3, 131, 131, 8, mask=causal())
    right = statistics.measure(
        made_call("", q=call.attention.q, k=call.attention.k, scale=0.3, real=real, mask=causal()), EVERY
    )
    broken = call.attention.q.masked_fill(~real[:, None, :, None], math.nan)
    found = statistics.measure(made_call("", q=broken, k=call.attention.k, scale=0.3, real=real, mask=causal()), EVERY)
    for name in right:
        torch.testing.assert_close(found[name], right[name], **CLOSE, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.usefixtures("in_triton")
def test_a_mask_that_kernels_do_not_know_is_written_out_a_part_at_a_time(monkeypatch):
    monkeypatch.setattr(statistics, "WRITTEN_OUT", 64 * 131 * 2)
    check(random_call(2, 3, 129, 131, 8, mask=masks(2, 129, 131)["dense by head"]))


@pytest.mark.usefixtures("in_triton")
def test_the_same_bits_every_time():
    call = random_call(1, 2, 131, 131, 8, mask=causal())
    first, again = (statistics.measure(call, EVERY) for _ in range(2))
    for name in first:
        torch.testing.assert_close(first[name], again[name], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("seen", [causal(), Everything()], ids=["causal", "everything"])
def test_many_tiles_give_the_same_as_few(seen):
    call = random_call(1, 2, 259, 323, 8, mask=seen)
    right = dense.measure(call, EVERY)
    mask, _ = mask_for_kernels(call.attention)
    received = torch.zeros(1, 2, 323, dtype=torch.int64)
    names = ("sink", "previous", "self")
    targets = [TARGETS[name] for name in names]
    lse = right["lse"].float()
    found = gpu.one_pass(
        call.attention.q, call.attention.k, call.attention.scale, mask, lse, None, None, None, received, targets
    )
    found |= dict(zip(names, found["chosen"], strict=True))
    for name in ("entropy", "distance", "largest", "largest_key", "sink", "previous", "self", "received"):
        torch.testing.assert_close(found[name], right[name], **CLOSE, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.usefixtures("in_triton")
def test_what_kernels_cannot_be_built_for_is_measured_all_the_same(monkeypatch):
    from triton.errors import TritonError

    def refuse(*_):
        raise TritonError("no room")

    monkeypatch.setattr(statistics, "_refused", set())
    monkeypatch.setattr(statistics, "_by_kernels", refuse)
    with pytest.warns(UserWarning, match="kernels cannot be built for this GPU and keys of 32 bytes"):
        check(random_call(2, 3, 7, 13, 8, mask=causal()))
    assert statistics._refused == {(torch.device("cpu"), 32)}

"""The Gluon program: it can be built for Hopper without a GPU; on one it gives the figures of the Triton program."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

from heads.dense import random_call
from heads.made_calls import made_call
from regard import causal
from regard.attention.masks import Everything
from regard.heads.measure import statistics
from regard.heads.measure.kernels.kernel_mask import KernelMask
from regard.heads.measure.registry import DEFAULT

if os.environ.get("TRITON_INTERPRET") == "1":
    pytest.skip("Triton's interpreter does not know Gluon", allow_module_level=True)
hopper = pytest.importorskip("regard.heads.measure.kernels.hopper_statistics")
gpu = pytest.importorskip("regard.heads.measure.kernels.launch")


@pytest.mark.parametrize(
    "told",
    [
        pytest.param({"D": 64, "U": 4}, id="64"),
        pytest.param({"D": 128, "U": 2, "CAUSAL": False, "REAL": True}, id="128, everything", marks=pytest.mark.slow),
        pytest.param({"D": 64, "U": 2, "COLUMNS": False}, id="64, rows alone", marks=pytest.mark.slow),
    ],
)
def test_it_can_be_built(told):
    """In a process of its own: Triton has much to say when one ends that built something."""
    found = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "build_hopper.py"), json.dumps(told)],
        env=os.environ | {"TRITON_DEFAULT_FP_FUSION": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    ptx = found.stdout
    assert "wgmma.mma_async" in ptx, found.stderr[-2000:]
    assert "cp.async.bulk.tensor" in ptx
    # Asked for ahead: between a product and the wait for it stand the exponentials of the tile before.
    ahead = ptx.split("wgmma.commit_group")[-1]
    assert "ex2.approx" in ahead.split("wgmma.wait_group")[0]


class Fake:
    """Queries or keys on a GPU that is not there."""

    is_cuda, device = True, "cuda"

    def __init__(self, dtype=torch.bfloat16, width=64):
        self.dtype, self.shape = dtype, (1, 1, 8, width)


def test_it_stands_for_plain_heads_on_hopper_alone(monkeypatch, without_shape_checks):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    plain, hidden = KernelMask(causal=True), torch.ones(1, 8, dtype=torch.bool)
    assert hopper.fits(Fake(), Fake(), plain)
    assert hopper.fits(Fake(torch.float16, 128), Fake(torch.float16, 128), KernelMask(shift=3))
    for rule in (
        KernelMask(window=3),
        KernelMask(keys=hidden),
        KernelMask(dense=hidden),
        KernelMask(bias=hidden),
        KernelMask(slopes=hidden),
    ):
        assert not hopper.fits(Fake(), Fake(), rule)
    for other in (Fake(torch.float32), Fake(torch.float16), Fake(width=60), Fake(width=128)):
        assert not hopper.fits(Fake(), other, plain)
        assert not hopper.fits(other, Fake(), plain)
    assert not hopper.fits(Fake(width=96), Fake(width=96), plain)
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert not hopper.fits(Fake(), Fake(), plain)
    monkeypatch.undo()
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    assert not hopper.fits(Fake(), Fake(), plain)


@pytest.mark.parametrize("error", [ValueError("another Gluon"), AssertionError(), AttributeError("no such layout")])
def test_where_it_cannot_be_built_another_is_taken(error, monkeypatch):
    class Broken:
        fits = staticmethod(lambda *_: True)

        @staticmethod
        def sweep(*_):
            raise error

    monkeypatch.setattr(gpu, "_hopper", [Broken])
    told = torch.zeros(1, 1, 8, 64), torch.zeros(1, 1, 8, 64), 0.5, KernelMask(), None
    with pytest.warns(UserWarning, match=r"program for Hopper GPUs cannot be built by Triton .* watching continues"):
        assert gpu._sweep_ahead(*told) == 0
    assert gpu._sweep_ahead(*told) == 0  # and no more is said
    assert gpu._hopper == []


@pytest.fixture
def launched(monkeypatch):
    """How often it was launched so far."""
    if torch.cuda.get_device_capability()[0] != 9:
        pytest.skip("needs a Hopper GPU")
    count, sweep = [], hopper.sweep
    monkeypatch.setattr(hopper, "sweep", lambda *args: count.append(1) or sweep(*args))
    return count


def check(call, launched):
    """The Triton program's figures but for rounding; and the same bits each time."""
    every = frozenset(DEFAULT)
    found, again = (statistics.measure(call, every) for _ in range(2))
    assert len(launched) == 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hopper, "fits", lambda *_: False)
        right = statistics.measure(call, every)
    assert len(launched) == 2
    assert set(found) == set(right)
    for name in right:
        say = partial("{}: {}".format, name)
        torch.testing.assert_close(found[name], right[name], rtol=1e-5, atol=1e-6, equal_nan=True, msg=say)
        torch.testing.assert_close(again[name], found[name], rtol=0, atol=0, equal_nan=True, msg=say)


@pytest.mark.gpu
@pytest.mark.parametrize("T, S", [(1, 1), (63, 63), (64, 64), (65, 200), (200, 65), (3, 1000), (4999, 4999)], ids=str)
@pytest.mark.parametrize("seen", [causal(), Everything()], ids=["causal", "everything"])
@pytest.mark.parametrize("H, Hkv, D", [(2, 2, 64), (4, 2, 128)], ids=str)
def test_it_gives_the_figures_of_the_triton_program(H, Hkv, D, seen, T, S, launched):
    call = random_call(2, H, T, S, D, Hkv)
    q, k = call.attention.q.to("cuda", torch.bfloat16), call.attention.k.to("cuda", torch.bfloat16)
    check(made_call("", q=q, k=k, scale=call.attention.scale, mask=seen), launched)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("D", [64, 128])
def test_padded_queries_known_tokens_and_keys_apart_in_memory(D, dtype, launched):
    packed = torch.randn(2, 1000, 3, 3, D, device="cuda", dtype=dtype)
    q, k = packed[:, :, 0].transpose(1, 2), packed[:, :, 1].transpose(1, 2)
    real = torch.rand(2, 1000, device="cuda") > 0.1
    tokens = torch.randint(0, 50, (2, 1000), device="cuda")
    check(made_call("", q=q, k=k, scale=0.2, mask=causal(), real=real, tokens=tokens), launched)

"""The Gluon program: it can be built for Hopper without a GPU; on one it gives the figures of the Triton program."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from regard import causal
from regard.kernels.rule import Rule
from regard.masks import Everything
from regard.watch import statistics
from watch.dense import random_call

if os.environ.get("TRITON_INTERPRET") == "1":
    pytest.skip("Triton's interpreter does not know Gluon", allow_module_level=True)
hopper = pytest.importorskip("regard.kernels.hopper")
gpu = pytest.importorskip("regard.kernels.gpu")


@pytest.mark.parametrize(
    "told",
    [
        {"D": 64, "U": 4},
        {"D": 128, "U": 2, "CAUSAL": False, "REAL": True},
        {"D": 64, "U": 2, "COLUMNS": False},
    ],
    ids=["64", "128, everything", "64, rows alone"],
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


def test_it_stands_for_plain_heads_on_hopper_alone():
    q = torch.zeros(1, 1, 8, 64, dtype=torch.bfloat16)
    assert not hopper.fits(q, Rule(causal=True))  # on a CPU
    assert Rule(causal=True).plain
    assert Rule(shift=3).plain
    hidden = torch.ones(1, 8, dtype=torch.bool)
    for rule in (Rule(window=3), Rule(keys=hidden), Rule(dense=hidden), Rule(bias=hidden), Rule(slopes=hidden)):
        assert not rule.plain


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("seen", [causal(), Everything()], ids=["causal", "everything"])
@pytest.mark.parametrize(
    "T, S", [(1, 1), (63, 63), (64, 64), (65, 200), (200, 65), (1000, 1000), (4999, 4999)], ids=str
)
@pytest.mark.parametrize("H, Hkv, D", [(2, 2, 64), (4, 2, 128), (3, 1, 64)], ids=str)
def test_it_gives_the_figures_of_the_triton_program(H, Hkv, D, T, S, seen, dtype, monkeypatch):
    if torch.cuda.get_device_capability()[0] != 9:
        pytest.skip("needs a Hopper GPU")
    call = random_call(2, H, T, S, D, Hkv, mask=seen, real=torch.rand(2, T) > 0.1)
    call = statistics.Call(
        "", q=call.q.to("cuda", dtype), k=call.k.to("cuda", dtype), scale=call.scale, mask=seen, real=call.real.cuda()
    )
    launched = []
    sweep = hopper.sweep
    monkeypatch.setattr(hopper, "sweep", lambda *args: launched.append(1) or sweep(*args))
    found = statistics.measure(call, frozenset(statistics.DEFAULT))
    assert launched
    monkeypatch.setattr(hopper, "fits", lambda *_: False)
    right = statistics.measure(call, frozenset(statistics.DEFAULT))
    assert len(launched) == 1
    for name in right:
        torch.testing.assert_close(
            found[name], right[name], rtol=1e-5, atol=1e-6, equal_nan=True, msg=lambda m, n=name: f"{n}: {m}"
        )
    again = statistics.measure(call, frozenset(statistics.DEFAULT))
    for name in right:
        torch.testing.assert_close(again[name], right[name], rtol=0, atol=0, equal_nan=True)

"""The attention of a new token against torch, by Triton's interpreter without a GPU.

TRITON_INTERPRET=1 pytest, the third command of `make test`
"""

import os

import pytest
import torch
import torch.nn.functional as F

from regard import attend_in_steps
from regard.attention.positions import Rotary

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs TRITON_INTERPRET=1", allow_module_level=True)
attend_one = pytest.importorskip("regard.gpt.generate.gpu_attention_kernel").attend_one
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter's numpy meets infinities

D, WIDTH, CAPACITY = 12, 16, 61


def run(qkv, keys, values, slot, starts, *, H, splits=1, block=16, window=None, rotary=None):
    """The kernel's context (B, H·D); keys and values get the new row at `slot`."""
    B, Hkv = keys.shape[:2]
    group = 1 if Hkv == H else 16
    parts = B * Hkv * splits * group
    cos, sin = (rotary or Rotary()).angles(torch.arange(CAPACITY), D)
    out = torch.full((B, H * D), float("nan"))
    attend_one[(B * Hkv, splits)](
        qkv, keys, values, torch.full((B,), slot, dtype=torch.int32), torch.tensor(starts, dtype=torch.int32), qkv, qkv,
        cos.contiguous(), sin.contiguous(), torch.empty(parts, WIDTH), torch.empty(parts), torch.empty(parts),
        torch.zeros(B * Hkv, dtype=torch.int32), out, CAPACITY, window or 0, D**-0.5, 0.0,
        H=H, HKV=Hkv, D=D, DP=WIDTH, G=group, BS=block, SPLITS=splits, QK_NORM=False, WINDOW=window is not None,
        ROTARY="none" if rotary is None else "pairs" if rotary.interleaved else "halves", EARLY=False, PRECISION="ieee",
    )  # fmt: skip
    return out


def expected(qkv, keys, values, slot, starts, *, H, window=None, rotary=None):
    """The same by torch, row by row over the visible keys; and the new key and value."""
    B, Hkv = keys.shape[:2]
    q, k, v = qkv.view(B, -1, 1, D).split([H, Hkv, Hkv], dim=1)
    positions = slot - torch.tensor(starts)
    if rotary is not None:
        q, k = rotary.rotate(q, k, positions[:, None])
    rows = []
    for b, start in enumerate(starts):
        low = start if window is None else max(start, slot + 1 - window)
        all_keys = torch.cat([keys[b, :, low:slot], k[b]], dim=1)[None]
        all_values = torch.cat([values[b, :, low:slot], v[b]], dim=1)[None]
        rows.append(F.scaled_dot_product_attention(q[b : b + 1], all_keys, all_values, enable_gqa=True).flatten())
    return torch.stack(rows), k[:, :, 0], v[:, :, 0]


def check(B, H, Hkv, slot, starts, **options):
    qkv = torch.randn(B, (H + 2 * Hkv) * D)
    keys, values = torch.randn(2, B, Hkv, CAPACITY, D)
    shared = {name: options[name] for name in ("window", "rotary") if name in options}
    context, new_key, new_value = expected(qkv, keys, values, slot, starts, H=H, **shared)
    before = keys.clone()
    torch.testing.assert_close(run(qkv, keys, values, slot, starts, H=H, **options), context)
    torch.testing.assert_close(keys[:, :, slot], new_key)
    torch.testing.assert_close(values[:, :, slot], new_value)
    others = torch.arange(CAPACITY) != slot
    torch.testing.assert_close(keys[:, :, others], before[:, :, others], rtol=0, atol=0)


@pytest.mark.parametrize("H, Hkv", [(3, 3), (4, 2), (5, 1)])
@pytest.mark.parametrize("slot", [0, 1, 16, 17, 60])
def test_a_query_attends_to_all_keys_so_far_and_to_its_own(H, Hkv, slot):
    check(2, H, Hkv, slot, [0, 0])


@pytest.mark.parametrize("H, Hkv", [(3, 3), (4, 2)])
@pytest.mark.parametrize("splits", [2, 5])
def test_programs_that_share_the_keys_of_a_head_give_the_same(H, Hkv, splits):
    check(2, H, Hkv, 53, [0, 7], splits=splits)


@pytest.mark.parametrize("splits", [1, 3])
def test_each_row_attends_from_its_own_start(splits):
    check(3, 2, 2, 41, [0, 17, 41], splits=splits)


@pytest.mark.parametrize("window", [1, 13, 16, 200])
def test_a_window_may_begin_anywhere_in_a_block(window):
    check(2, 4, 2, 43, [0, 38], window=window, splits=2)


@pytest.mark.parametrize("rotary", [Rotary(), Rotary(interleaved=True)], ids=["halves", "pairs"])
@pytest.mark.parametrize("H, Hkv", [(3, 3), (4, 2)])
def test_queries_and_keys_are_rotated_by_their_position_in_the_row(H, Hkv, rotary):
    check(2, H, Hkv, 29, [0, 11], rotary=rotary)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("place", ["query", "new key", "old key", "new value"])
@pytest.mark.parametrize("slot, splits", [(0, 1), (5, 1), (41, 3)])
@pytest.mark.parametrize("H, Hkv", [(3, 3), (4, 2)])
def test_a_nan_or_infinity_is_what_it_is_in_the_formula(H, Hkv, slot, splits, place, bad):
    qkv = torch.randn(2, (H + 2 * Hkv) * D)
    keys, values = torch.randn(2, 2, Hkv, CAPACITY, D)
    {"query": qkv[0, :D], "new key": qkv[0, H * D : H * D + 1], "old key": keys[0, 0, 0], "new value": qkv[0, -D:]}[
        place
    ].fill_(bad)
    found = run(qkv, keys, values, slot, [0, 0], H=H, splits=splits)
    q, k, v = qkv.view(2, -1, 1, D).split([H, Hkv, Hkv], dim=1)
    keys, values = torch.cat([keys[:, :, :slot], k], dim=2), torch.cat([values[:, :, :slot], v], dim=2)
    torch.testing.assert_close(found, attend_in_steps(q, keys, values)[0].flatten(1), equal_nan=True)

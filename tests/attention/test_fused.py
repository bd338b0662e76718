"""The routes through SDPA, each held against the formula; test_attend.py has the table of cases."""

import torch

from helpers import by_loops, random_qkv
from regard import alibi_slopes, causal, padding, window
from regard.attention import fused
from regard.attention.call import Call

EXACT = {"rtol": 1e-9, "atol": 1e-11}


def call_and_right(mask, T, S, alibi=False):
    q, k, v = random_qkv(B=2, H=4, T=T, S=S, D=7, Hkv=2)
    slopes = alibi_slopes(4).double() if alibi else None
    right, _ = by_loops(q, k, v, mask.dense(T, S).expand(2, 4, T, S), 0.3, slopes)
    return Call(q=q, k=k, v=v, mask=mask, scale=0.3, alibi=slopes), right


def test_every_route_is_the_formula_for_the_masks_it_is_for():
    routes = {
        fused.FUSED_CAUSAL: (causal(), 5, 5),
        fused.FUSED_KEYS: (padding([7, 3]), 5, 7),
        fused.FUSED_CAUSAL_KEYS: (causal() & padding([5, 2]), 5, 5),
        fused.BANDED: (causal() & window(2) & padding([17, 11]), 17, 17),
        fused.TILED: (causal() & window(3), 5, 11),
    }
    for route, (mask, T, S) in routes.items():
        call, right = call_and_right(mask, T, S)
        torch.testing.assert_close(
            route.run(call, mask.parts()), right, **EXACT, msg=lambda m, r=route: f"{r.name}: {m}"
        )


def test_tiles_of_few_rows_give_the_same_as_one(monkeypatch):
    call, right = call_and_right(causal() & window(9), 37, 41, alibi=True)
    sizes = []

    def attend_rows(q, *rest):
        sizes.append(q.shape[2])
        return fused.masked_sdpa(q, *rest)

    monkeypatch.setattr(fused, "TILE", 1)
    with torch.no_grad():
        torch.testing.assert_close(fused.attend_in_tiles(call, attend_rows, copies=8), right, **EXACT)
    assert sizes == [16, 16, 5]


def test_a_route_chosen_for_another_reason_runs_the_same_function():
    route = fused.TILED.because("it rains")
    assert (route.name, route.why, route.run) == ("tiled", "it rains", fused.TILED.run)


def test_keys_that_nobody_sees_are_found_over_all_heads_and_queries():
    allowed = torch.zeros(2, 3, 5, 7, dtype=torch.bool)
    allowed[0, 1, 2, 3] = allowed[1, 0, 4, 6] = True
    wanted = torch.ones(2, 1, 7, 1, dtype=torch.bool)
    wanted[0, 0, 3, 0] = wanted[1, 0, 6, 0] = False
    assert torch.equal(fused.hidden_from_all(allowed), wanted)


def test_real_keys_come_from_lengths_or_a_tensor():
    k = torch.empty(2, 3, 5, 1)
    keep = torch.tensor([[1, 1, 1, 0, 0], [1, 0, 0, 0, 0]], dtype=torch.bool)
    assert torch.equal(fused.real_keys(torch.tensor([3, 1]), k), keep)
    assert torch.equal(fused.real_keys(keep, k), keep)

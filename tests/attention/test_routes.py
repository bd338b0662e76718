"""The routes through SDPA, each held against the formula; test_attend.py has the table of cases."""

import pytest
import torch

from helpers import by_loops, paths_taken, random_qkv, with_gradients
from regard import alibi_slopes, attend, attend_in_steps, causal, explain, padding, window
from regard.attention import routes
from regard.attention.call import Call
from regard.attention.observers import observe
from regard.attention.routes import attend_rows
from regard.steps import collecting

EXACT = {"rtol": 1e-9, "atol": 1e-11}


def call_and_right(mask, T, S, alibi=False):
    q, k, v = random_qkv(B=2, H=4, T=T, S=S, D=7, Hkv=2)
    slopes = alibi_slopes(4).double() if alibi else None
    right, _ = by_loops(q, k, v, mask.dense(T, S).expand(2, 4, T, S), 0.3, slopes)
    return Call(q=q, k=k, v=v, mask=mask, scale=0.3, alibi=slopes), right


def test_every_route_is_the_formula_for_the_masks_it_is_for():
    cases = {
        routes.FUSED_CAUSAL: (causal(), 5, 5),
        routes.FUSED_KEYS: (padding([7, 3]), 5, 7),
        routes.FUSED_CAUSAL_KEYS: (causal() & padding([5, 2]), 5, 5),
        routes.BANDED: (causal() & window(2) & padding([17, 11]), 17, 17),
        routes.TILED: (causal() & window(3), 5, 11),
    }
    for route, (mask, T, S) in cases.items():
        call, right = call_and_right(mask, T, S)
        torch.testing.assert_close(
            route.run(call, mask.parts()), right, **EXACT, msg=lambda m, r=route: f"{r.name}: {m}"
        )


def test_tiles_of_few_rows_give_the_same_as_one(monkeypatch):
    call, right = call_and_right(causal() & window(9), 37, 41, alibi=True)
    sizes = []

    def attend_tile(q, *rest, **options):
        sizes.append(q.shape[2])
        return routes.masked_sdpa(q, *rest, **options)

    monkeypatch.setattr(routes, "TILE", 1)
    with torch.no_grad():
        torch.testing.assert_close(routes.attend_in_tiles(call, attend_tile, copies=8), right, **EXACT)
    assert sizes == [16, 16, 5]


def test_a_route_chosen_for_another_reason_runs_the_same_function():
    route = routes.TILED.because("it rains")
    assert (route.name, route.why, route.run) == ("tiled", "it rains", routes.TILED.run)


WIDTHS = {
    "fused": (None, 3, 5),
    "fused causal": (causal(), 5, 5),
    "fused, key mask": (padding([7, 3]), 5, 7),
    "fused causal, key mask": (causal() & padding([5, 2]), 5, 5),
    "banded": (causal() & window(2) & padding([17, 11]), 17, 17),
    "tiled": (causal() & window(3), 5, 11),
}


@pytest.mark.parametrize("alibi", [False, True])
@pytest.mark.parametrize("Dv", [3, 11])
@pytest.mark.parametrize("name", WIDTHS)
def test_values_may_have_another_width_than_keys(name, Dv, alibi):
    mask, T, S = WIDTHS[name]
    q, k, _ = random_qkv(B=2, H=4, T=T, S=S, D=7, Hkv=2)
    v, slopes = torch.randn(2, 2, S, Dv, dtype=torch.float64), alibi_slopes(4) if alibi else None
    with paths_taken() as taken:
        found = with_gradients(lambda *qkv: attend(*qkv, mask=mask, alibi=slopes), q, k, v)
    assert taken == ["tiled" if alibi else name]
    wanted = with_gradients(lambda *qkv: attend_in_steps(*qkv, mask=mask, alibi=slopes)[0], q, k, v)
    assert found[0].shape == (2, 4, T, Dv)
    torch.testing.assert_close(found, wanted, **EXACT)


def test_the_formula_with_values_of_another_width_is_that_of_each_column():
    q, k, _ = random_qkv(B=2, H=3, T=5, S=7, D=11)
    v = torch.randn(2, 3, 7, 2, dtype=torch.float64)
    context, weights = attend_in_steps(q, k, v)
    torch.testing.assert_close(context, weights @ v, **EXACT)


def test_another_width_keeps_the_fused_kernel():
    q, k, v = random_qkv(B=1, H=2, T=5, S=5, D=8, dtype=torch.float32)

    class Layer(torch.nn.Module):
        def forward(self):
            return attend(q, k, v[..., :3], mask=causal())

    assert "SDPA flash attention" in str(explain(Layer()))


@pytest.mark.parametrize("size", [1.0, 1e4, 1e6, 1e12])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_padding_stays_hidden_however_low_the_scores_are(dtype, size):
    q = torch.full((2, 3, 5, 7), size, dtype=dtype)
    k = -q  # all scores are −size² · √7
    v = torch.randn(2, 3, 5, 7).to(dtype)
    mask = causal() & padding(torch.tensor([[1, 1, 1, 1, 1], [0, 1, 1, 0, 1]], dtype=torch.bool))
    with paths_taken() as taken:
        out = attend(q, k, v, mask=mask)
    assert taken == ["fused causal, key mask"]
    right, _ = attend_in_steps(q.double(), k.double(), v.double(), mask=mask)
    tolerance = 1e-2 if dtype is torch.bfloat16 else 1e-6
    torch.testing.assert_close(out.double(), right, rtol=0, atol=tolerance)


def test_in_float16_padding_stays_hidden_where_one_channel_would_not_do():
    q, v = torch.full((1, 1, 5, 64), 13_000.0, dtype=torch.float16), torch.randn(1, 1, 5, 64).half()
    mask = causal() & padding(torch.tensor([[0, 1, 1, 0, 1]], dtype=torch.bool))
    k = -q * torch.tensor([1.0, 1.0, 0.75, 1.0, 0.5], dtype=torch.float16)[:, None]  # so that each row has one best
    out = attend(q, k, v, mask=mask)  # products down to −1.1e10
    right, _ = attend_in_steps(q.double(), k.double(), v.double(), mask=mask)
    torch.testing.assert_close(out.double(), right, rtol=0, atol=1e-3)


def test_a_nan_of_one_text_does_not_reveal_the_padding_of_another():
    q, v = torch.full((2, 3, 5, 7), 1e6), torch.randn(2, 3, 5, 7)
    mask = causal() & padding(torch.tensor([[1, 1, 1, 1, 1], [0, 1, 1, 0, 1]], dtype=torch.bool))
    k = -q
    call = Call(q=q, k=k.index_fill(0, torch.tensor([0]), torch.nan), v=v, mask=mask, scale=7**-0.5)
    out = routes.FUSED_CAUSAL_KEYS.run(call, mask.parts())
    torch.testing.assert_close(out[1:], attend_in_steps(q, k, v, mask=mask)[0][1:], rtol=0, atol=1e-6)


def test_rows_are_those_of_the_whole_call_with_mask_bias_and_slopes():
    q, k, v = (torch.randn(2, 6, T, 5, dtype=torch.float64) for T in (7, 11, 11))
    bias, slopes = torch.randn(2, 1, 7, 11, dtype=torch.float64), alibi_slopes(6)
    rows = torch.tensor([5, 0, 3])
    call = Call(q=q, k=k, v=v, mask=causal(), scale=0.3, bias=bias, alibi=slopes)
    whole = attend_in_steps(q, k, v, mask=causal(), scale=0.3, bias=bias, alibi=slopes)
    torch.testing.assert_close(attend_rows(call, rows), tuple(t[:, :, rows] for t in whole))


def test_rows_are_no_step_of_a_trace_and_no_attention_of_the_model():
    q = k = v = torch.randn(1, 2, 3, 5)
    noticed = []
    with collecting(lambda *one: noticed.append(one)), observe(lambda *one: noticed.append(one)):
        attend_rows(Call(q=q, k=k, v=v, scale=0.5), torch.tensor([1]))
    assert noticed == []


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_to_another_dtype_hides_padding_below_any_score_too(kind):
    mask = causal() & padding(torch.tensor([[False, False, True, True, True], [True] * 5]))
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        for scale in (None, 1e-2, 1e-5):
            qkv = random_qkv(B=2, H=3, T=5, S=5, D=8, dtype=dtype)
            with torch.autocast("cpu", kind):
                found = attend(*qkv, mask=mask, scale=scale)
            wanted = attend_in_steps(*qkv, mask=mask, scale=scale)[0]
            torch.testing.assert_close(found.double(), wanted.double(), rtol=0.04, atol=0.04)

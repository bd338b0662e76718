"""Every statistic against its definition in float64, over masks, heads, types and shapes."""

import math
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F

from heads import dense
from heads.dense import random_call
from heads.made_calls import made_call
from regard import alibi_slopes, causal, documents, padding, window
from regard.attention.masks import EVERYTHING
from regard.heads.measure import on_demand, statistics
from regard.heads.measure.kernels import exact_weights as tiles
from regard.heads.measure.kernels import tile_statistics
from regard.heads.measure.registry import COLUMNS, DEFAULT, ROWS
from sampled import quick_only

ALL = frozenset({*ROWS, *COLUMNS, "histogram"})
CLOSE = {"rtol": 2e-5, "atol": 2e-6, "equal_nan": True, "check_dtype": False}


def masks(B, T, S):
    """Masks that fit B, T and S, by name."""
    real = torch.rand(B, S) > 0.3
    real[:, -1] = True
    found = {
        "none": EVERYTHING,
        "causal": causal(),
        "window": causal() & window(3),
        "window both ways": window(4),
        "right padding": causal() & padding(torch.randint(1, S + 1, (B,))),
        "holes": padding(real),
        "left padding": causal() & padding(torch.arange(S) >= torch.tensor([[0], [S // 2]])[:B]),
        "dense": regard_dense(torch.rand(B, 1, T, S) > 0.4),
        "dense by head": regard_dense(torch.rand(1, 3, T, S) > 0.4),
        "nothing seen": regard_dense(torch.zeros(T, S, dtype=torch.bool)),
        "or": causal() | padding(real),
    }
    if T <= S:
        found["documents"] = causal() & documents(torch.arange(S) // 4)
    return found


def regard_dense(seen):
    from regard.attention.masks import dense as written_out

    return written_out(seen)


@pytest.fixture(autouse=True, params=["short", "long"])
def length(request, monkeypatch):
    """Short texts are looked at all together, long ones in several tiles: both ways, whatever the length."""
    if request.param == "long":
        monkeypatch.setattr(tiles, "FEW", 0)
        monkeypatch.setattr(tiles, "ROWS", 16)
        monkeypatch.setattr(tile_statistics, "GROUP_ROWS", 16)


def check(call):
    found, right = statistics.measure(call, ALL), dense.measure(call, ALL)
    assert set(found) == set(right)
    for name in right:
        if name == "largest_key":  # of keys alike, any will do
            p = dense.probabilities(call)
            here = p.gather(-1, found[name].clamp(min=0)[..., None])[..., 0] if p.shape[-1] else right["largest"]
            known = right["largest_key"] >= 0
            assert torch.equal(found[name] >= 0, known)
            torch.testing.assert_close(here[known], right["largest"][known], **CLOSE)
        else:
            torch.testing.assert_close(found[name], right[name], **CLOSE, msg=lambda m, n=name: f"{n}: {m}")
    lse = found["lse"]
    for head in range(call.sizes[1]):
        keys, weights = on_demand.top(call, lse, head, 3)
        best, most = dense.top(call, lse, head, 3)
        torch.testing.assert_close(weights, most, **CLOSE)
        assert torch.equal(keys >= 0, best >= 0)
        for n in (1, 3, 128):
            torch.testing.assert_close(on_demand.pooled(call, lse, head, n), dense.pooled(call, lse, head, n), **CLOSE)
        _, _, T, S = call.sizes
        rows, cols = torch.randperm(T)[: T // 2 + 1], torch.randperm(S)[: S // 2 + 1]
        torch.testing.assert_close(
            on_demand.weights(call, lse, head, rows, cols), dense.weights(call, lse, head, rows, cols), **CLOSE
        )
    texts, heads, rows = on_demand.counted(call, lse).nonzero().unbind(1)
    order = torch.randperm(len(texts))
    texts, heads, rows = texts[order], heads[order], rows[order]
    single = on_demand.weights_of_rows(call, lse, texts, heads, rows)
    torch.testing.assert_close(single, dense.probabilities(call)[texts, heads, rows], **CLOSE)
    amounts = torch.rand(call.sizes[0], 2, call.sizes[2])
    torch.testing.assert_close(on_demand.carry(call, lse, amounts), dense.carry(call, lse, amounts), **CLOSE)


SHAPES = [(1, 1), (5, 5), (7, 13), (13, 7), (63, 63), (65, 65), (129, 129), (131, 192), (1, 37)]
QUICK = [(1, 1), (7, 13), (13, 7), (65, 65), (1, 37)]


@pytest.mark.parametrize("T, S", quick_only(QUICK, SHAPES, str))
@pytest.mark.parametrize("name", list(masks(2, 5, 5)))
def test_every_statistic_is_its_definition(T, S, name):
    torch.manual_seed(T * S)
    found = masks(2, T, S)
    if name not in found:
        pytest.skip("documents need a key for every query")
    check(random_call(2, 3, T, S, 11, mask=found[name], tokens=torch.randint(0, 5, (2, S))))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("H, Hkv", [(3, 3), (6, 2), (4, 1)], ids=str)
@pytest.mark.parametrize("D", [8, 64, 96, 128])
def test_types_and_shared_keys(dtype, H, Hkv, D):
    call = random_call(2, H, 17, 17, D, Hkv, mask=causal(), tokens=torch.randint(0, 5, (2, 17)))
    check(
        made_call(
            "",
            q=call.attention.q.to(dtype),
            k=call.attention.k.to(dtype),
            scale=call.attention.scale,
            mask=causal(),
            tokens=call.origin.tokens,
        )
    )


@pytest.mark.parametrize("shape", [(2, 3, 11, 13), (1, 1, 11, 13), (1, 3, 1, 13), (2, 1, 11, 1), (11, 13)], ids=str)
@pytest.mark.parametrize("hides", [False, True])
def test_what_is_added_to_scores(shape, hides):
    bias = torch.randn(shape)
    if hides:
        bias = bias.masked_fill(torch.rand(shape) > 0.6, -math.inf)
    check(random_call(2, 3, 11, 13, 7, bias=bias, mask=causal()))


def test_alibi():
    check(random_call(2, 4, 11, 13, 7, alibi=alibi_slopes(4)))


def test_padded_queries_do_not_count():
    real = torch.tensor([[True] * 5 + [False] * 4, [True] * 9])
    check(random_call(2, 3, 9, real=real, mask=causal()))
    check(random_call(2, 3, 9, real=real.flip(-1), mask=causal() & padding(real.flip(-1))))


@pytest.mark.parametrize("T, S", [(5, 5), (7, 13), (131, 131)], ids=str)
def test_weights_that_came_written_out(T, S):
    seen = causal().dense(T, S)
    p = torch.randn(2, 3, T, S).masked_fill(~seen, -math.inf).softmax(-1)
    check(made_call("", weights=p, tokens=torch.randint(0, 5, (2, S))))
    check(made_call("", weights=p, real=torch.rand(2, T) > 0.3))


@pytest.mark.parametrize("B, T, S", [(0, 5, 5), (2, 0, 5), (2, 0, 0)], ids=str)
def test_nothing_gives_nothing(B, T, S):
    found = statistics.measure(random_call(B, 3, T, S, 7, mask=causal()), frozenset(DEFAULT))
    assert found["entropy"].shape == (B, 3, T)
    assert torch.equal(found["received"], torch.zeros(B, 3, S))


def test_one_sharp_key_at_a_long_distance_keeps_its_digits():
    T = 4099
    q = torch.zeros(1, 1, T, 4)
    q[..., 0] = 100.0
    k = torch.zeros(1, 1, T, 4)
    k[0, 0, :, 0] = -1.0
    k[0, 0, 3, 0] = 1.0
    found = statistics.measure(made_call("", q=q, k=k, scale=1.0, mask=causal()), frozenset({"distance"}))
    torch.testing.assert_close(found["distance"][0, 0, 3:], torch.arange(T - 3.0))


def test_torchs_own_kernel_agrees_by_four_identities():
    """entropy = lse − scale · q · attention(values = keys); received is the gradient of the values; and so on."""
    T, D = 67, 16
    call = random_call(2, 3, T, T, D, mask=causal())
    q, k = call.attention.q.double(), call.attention.k.double()
    found = statistics.measure(call, frozenset({"entropy", "received", "distance", "lse"}))

    def attended(values):
        return F.scaled_dot_product_attention(q, k, values, is_causal=True)

    mixed = attended(k)
    torch.testing.assert_close(
        found["entropy"], (found["lse"] - call.attention.scale * (q * mixed).sum(-1)).float(), **CLOSE
    )
    values = torch.randn(2, 3, T, D, dtype=torch.float64, requires_grad=True)
    (grad,) = torch.autograd.grad(attended(values).sum(), values)
    torch.testing.assert_close(found["received"], grad[..., 0].float(), **CLOSE)
    place = torch.arange(T).double()
    mean = attended(place[:, None].expand(2, 3, T, D))[..., 0]
    torch.testing.assert_close(found["distance"], (place - mean).float(), **CLOSE | {"atol": 1e-5})
    block = F.one_hot(torch.arange(T) * 4 // T, D).double().expand(2, 3, T, D)
    blocks = attended(block)[..., :4]
    edges = [c * T // 4 for c in range(5)]
    cells = torch.stack([blocks[..., a:b, :].mean(-2) for a, b in pairwise(edges)], -2)
    width = torch.bincount(torch.arange(T) * 4 // T)
    grid = torch.stack([on_demand.pooled(call, found["lse"], h, 4) for h in range(3)], 1)
    if torch.equal(width, torch.tensor([b - a for a, b in pairwise(edges)])):
        torch.testing.assert_close(grid, (cells / width).float(), **CLOSE)


def test_a_text_that_changes_in_place_is_looked_at_again():
    tokens = torch.tensor([[1, 2, 1, 2, 3]])
    call = random_call(1, 2, 5, mask=causal(), tokens=tokens)
    check(call)
    tokens.copy_(torch.tensor([[3, 3, 1, 1, 3]]))
    check(call)
    check(random_call(1, 2, 5, mask=causal(), tokens=torch.tensor([[7, 7, 7, 7, 7]])))


def test_next_is_the_weight_on_the_following_token_and_zero_where_nobody_may_look_ahead():
    T = 7
    k = torch.eye(T).view(1, 1, T, T)
    call = made_call("", q=k.roll(-1, dims=2), k=k, scale=100.0)  # each query is the key after its own
    ahead = statistics.measure(call, frozenset({"next"}))["next"]
    torch.testing.assert_close(ahead, torch.tensor([[[1.0] * 6 + [math.nan]]]), equal_nan=True)
    hidden = statistics.measure(call.with_attention(mask=causal()), frozenset({"next"}))["next"]
    torch.testing.assert_close(hidden, torch.tensor([[[0.0] * 6 + [math.nan]]]), equal_nan=True)


def test_the_last_token_before_padding_has_no_next_one():
    real = torch.tensor([[True] * 4 + [False] * 3, [True] * 7, [False] * 2 + [True] * 5])
    call = random_call(3, 2, 7, real=real, mask=padding(real))
    ahead = statistics.measure(call, frozenset({"next"}))["next"]
    unknown = torch.tensor([[0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0, 1], [1, 1, 0, 0, 0, 0, 1]]).bool()
    assert torch.equal(ahead.isnan(), unknown[:, None].expand(3, 2, 7))

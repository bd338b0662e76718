import math
import threading

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel

import regard
from helpers import paths_taken, random_qkv, with_gradients
from regard import alibi_slopes, attend, attend_in_steps, causal, dense, documents, padding, trace, window
from regard.attention import routes

EXACT = {"rtol": 1e-9, "atol": 1e-11}


def lengths(B, S):
    return padding([S - 1 - 2 * b if b % 2 else S for b in range(B)])


def left_padded(B, S):
    return padding(torch.arange(S) >= (3 * torch.arange(B) + 2)[:, None] % S)


def random_dense(*shape):
    return dense(torch.rand(shape, generator=torch.Generator().manual_seed(5)) < 0.6)


# name: (mask of (B, H, T, S), T, S, D, the path it must take); B is 3, H is 6.
CASES = {
    "nothing hidden": (lambda B, H, T, S: None, 63, 65, 8, "fused"),
    "one query, causal": (lambda B, H, T, S: causal(), 1, 13, 64, "fused"),
    "one query, causal window": (lambda B, H, T, S: causal() & window(5), 1, 13, 8, "fused"),
    "one token": (lambda B, H, T, S: None, 1, 1, 8, "fused"),
    "causal 2": (lambda B, H, T, S: causal(), 2, 2, 96, "fused causal"),
    "causal 63": (lambda B, H, T, S: causal(), 63, 63, 96, "fused causal"),
    "causal 64": (lambda B, H, T, S: causal(), 64, 64, 64, "fused causal"),
    "causal 65": (lambda B, H, T, S: causal(), 65, 65, 128, "fused causal"),
    "causal 192": (lambda B, H, T, S: causal(), 192, 192, 8, "fused causal"),
    "causal, window as wide as the text": (lambda B, H, T, S: causal() & window(65), 65, 65, 8, "fused causal"),
    "lengths": (lambda B, H, T, S: lengths(B, S), 5, 129, 8, "fused, key mask"),
    "lengths as a tensor": (lambda B, H, T, S: torch.tensor([7, 0, 3]), 5, 7, 8, "fused, key mask"),
    "left padded": (lambda B, H, T, S: left_padded(B, S), 127, 64, 96, "fused, key mask"),
    "one query, causal, lengths": (lambda B, H, T, S: causal() & lengths(B, S), 1, 13, 8, "fused, key mask"),
    "causal, lengths": (lambda B, H, T, S: causal() & lengths(B, S), 65, 65, 96, "fused causal, key mask"),
    "causal, left padded": (lambda B, H, T, S: left_padded(B, S) & causal(), 129, 129, 8, "fused causal, key mask"),
    "causal, lengths 64": (lambda B, H, T, S: causal() & lengths(B, S), 64, 64, 128, "fused causal, key mask"),
    "causal window": (lambda B, H, T, S: causal() & window(5), 63, 63, 8, "banded"),
    "causal window 23": (lambda B, H, T, S: causal() & window(23), 192, 192, 64, "banded"),
    "window": (lambda B, H, T, S: window(7), 64, 64, 96, "banded"),
    "window 1": (lambda B, H, T, S: window(1), 11, 11, 8, "banded"),
    "two windows": (lambda B, H, T, S: window(9) & window(4), 65, 65, 8, "banded"),
    "causal window, lengths": (lambda B, H, T, S: causal() & window(11) & lengths(B, S), 127, 127, 8, "banded"),
    "causal window, left padded": (lambda B, H, T, S: left_padded(B, S) & causal() & window(3), 65, 65, 8, "banded"),
    "window, left padded": (lambda B, H, T, S: window(8) & left_padded(B, S), 64, 64, 8, "banded"),
    "more keys than causal queries": (lambda B, H, T, S: causal(), 5, 7, 8, "tiled"),
    "more causal queries than keys": (lambda B, H, T, S: causal(), 7, 5, 8, "tiled"),
    "wide window": (lambda B, H, T, S: causal() & window(40), 65, 65, 8, "tiled"),
    "cached window, lengths": (lambda B, H, T, S: causal() & window(5) & lengths(B, S), 11, 17, 8, "tiled"),
    "documents": (lambda B, H, T, S: causal() & documents(torch.arange(S) // 23), 127, 127, 8, "tiled"),
    "documents of each": (lambda B, H, T, S: documents(torch.arange(B * S).view(B, S) // 5), 7, 13, 8, "tiled"),
    "dense T S": (lambda B, H, T, S: random_dense(T, S), 63, 65, 8, "tiled"),
    "a bool tensor": (lambda B, H, T, S: random_dense(B, T, S).seen, 13, 11, 8, "tiled"),
    "dense B H T S": (lambda B, H, T, S: random_dense(B, H, T, S) & causal(), 129, 129, 8, "tiled"),
    "dense 1 1 T S": (lambda B, H, T, S: random_dense(1, 1, T, S), 5, 7, 8, "tiled"),
    "prefix": (lambda B, H, T, S: causal() | lengths(B, 17), 192, 192, 8, "tiled"),
    "not": (lambda B, H, T, S: ~(causal() & window(9)) & lengths(B, S), 64, 64, 8, "tiled"),
    "two paddings": (lambda B, H, T, S: lengths(B, S) & left_padded(B, S) & causal(), 64, 64, 8, "tiled"),
}  # fmt: skip

# The same masks over sizes small enough for gradcheck and for looking at; one for each path.
PATHS = {
    "fused": (lambda B, S: None, 3, 5),
    "fused causal": (lambda B, S: causal(), 5, 5),
    "fused, key mask": (lambda B, S: lengths(B, S), 3, 5),
    "fused causal, key mask": (lambda B, S: causal() & left_padded(B, S), 7, 7),
    "banded": (lambda B, S: causal() & window(2) & left_padded(B, S), 17, 17),
    "banded both ways": (lambda B, S: window(2) & lengths(B, S), 17, 17),
    "tiled": (lambda B, S: causal() & documents(torch.arange(S) // 3), 5, 5),
    "tiled, many": (lambda B, S: causal() & window(40) & left_padded(B, S), 67, 71),
}
every_path = pytest.mark.parametrize("name", PATHS)


@pytest.fixture
def small_tiles(monkeypatch):
    """Tiles of 16 rows, the fewest that attend() takes."""
    monkeypatch.setattr(routes, "TILE", 1)


def in_steps(q, k, v, **options):
    return attend_in_steps(q, k, v, **options)[0]


def check_equal(q, k, v, expected_path, **options):
    """Attend() takes the expected path, and agrees with attend_in_steps() in values and gradients."""
    with paths_taken() as taken:
        found = with_gradients(lambda *qkv: attend(*qkv, **options), q, k, v)
    assert taken == [expected_path]
    wanted = with_gradients(lambda *qkv: in_steps(*qkv, **options), q, k, v)
    torch.testing.assert_close(found, wanted, **EXACT)


@pytest.mark.parametrize("Hkv", [6, 2, 1])
@pytest.mark.parametrize("case", CASES)
def test_fast_equals_readable(case, Hkv):
    mask, T, S, D, path = CASES[case]
    check_equal(*random_qkv(B=3, H=6, T=T, S=S, D=D, Hkv=Hkv), path, mask=mask(3, 6, T, S))


@pytest.mark.parametrize("case", [c for c in CASES if CASES[c][1] > 64])
def test_fast_equals_readable_in_many_tiles(case, small_tiles):
    mask, T, S, _, path = CASES[case]
    check_equal(*random_qkv(B=3, H=6, T=T, S=S, D=8, Hkv=3), path, mask=mask(3, 6, T, S))
    check_equal(*random_qkv(B=3, H=6, T=T, S=S, D=8), "tiled", mask=mask(3, 6, T, S), alibi=alibi_slopes(6))


@pytest.mark.parametrize("case", [c for c in CASES if CASES[c][1] < 66])
def test_fast_equals_readable_with_alibi_and_scale(case):
    mask, T, S, _, path = CASES[case]
    q, k, v = random_qkv(B=3, H=6, T=T, S=S, D=8, Hkv=2)
    check_equal(q, k, v, path, mask=mask(3, 6, T, S), scale=0.7)
    check_equal(q, k, v, "tiled", mask=mask(3, 6, T, S), scale=0.2, alibi=alibi_slopes(6))


@every_path
def test_memory_order_of_the_inputs_does_not_matter(name, small_tiles):
    mask, T, S = PATHS[name]
    q = torch.randn(2, T, 3, 8, dtype=torch.float64).transpose(1, 2)
    k = torch.randn(2, 3, S, 16, dtype=torch.float64)[..., ::2]
    v = torch.randn(2, 1, S, 8, dtype=torch.float64).expand(2, 3, S, 8)
    check_equal(q, k, v, name.split(",")[0] if "many" in name else name.removesuffix(" both ways"), mask=mask(2, S))


@every_path
def test_an_empty_batch_gives_an_empty_result(name):
    mask, T, S = PATHS[name]
    q, k, v = random_qkv(B=0, H=2, T=T, S=S, D=8, requires_grad=True)
    out = attend(q, k, v, mask=mask(0, S))
    assert out.shape == (0, 2, T, 8)
    out.sum().backward()
    assert q.grad.shape == q.shape


@pytest.mark.parametrize("mask", [None, causal(), window(2), padding([0, 0]), ~causal()])
@pytest.mark.parametrize(("T", "S"), [(0, 5), (5, 0), (0, 0)])
def test_no_queries_or_no_keys_give_zeros(T, S, mask):
    q, k, v = random_qkv(B=2, H=3, T=T, S=S, D=8)
    with paths_taken() as taken:
        found = with_gradients(lambda *qkv: attend(*qkv, mask=mask), q, k, v)
    assert taken == ["in steps"]
    torch.testing.assert_close(found, tuple(torch.zeros_like(t) for t in (q, q, k, v)), **EXACT)


@pytest.mark.parametrize("T", [1, 2, 65])
def test_being_observed_changes_nothing(T):
    q, k, v = random_qkv(B=2, H=3, T=T, S=T, D=8, dtype=torch.float32)
    with paths_taken() as taken:
        seen = attend(q, k, v, mask=causal())
    assert torch.equal(seen, attend(q, k, v, mask=causal()))
    assert len(taken) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("case", [c for c in CASES if CASES[c][1] in (5, 63, 64, 65, 129)])
def test_low_precision_errs_at_most_twice_as_much_as_pytorch(case, dtype):
    mask, T, S, D, path = CASES[case]
    mask = regard.attention.masks.as_mask(mask(3, 6, T, S))
    rounded = [t.to(dtype) for t in random_qkv(B=3, H=6, T=T, S=S, D=D, Hkv=2)]
    wide = [t.double() for t in rounded]
    shown = mask.dense(T, S).expand(3, 6, T, S)
    some = shown.any(-1, keepdim=True)  # PyTorch gives NaN for rows that see nothing: lend them a key, take it back

    def peer(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=shown | ~some, enable_gqa=True) * some

    def error(found):
        return [(f.double() - w).abs().max().item() for f, w in zip(found, wanted, strict=True)]

    wanted = with_gradients(lambda *qkv: in_steps(*qkv, mask=mask), *wide)
    with paths_taken() as taken:
        ours = error(with_gradients(lambda *qkv: attend(*qkv, mask=mask), *rounded))
    assert taken == [path]
    with sdpa_kernel(SDPBackend.MATH):
        values, *_ = error(with_gradients(peer, *rounded))
    _, *gradients = error(with_gradients(peer, *rounded))  # PyTorch's fused kernel; its math keeps wider gradients
    atol = torch.finfo(dtype).eps
    allowed = [2 * their + atol for their in (values, *gradients)]
    assert all(our <= most for our, most in zip(ours, allowed, strict=True)), f"{ours} against {allowed}"


@every_path
def test_gradients_are_right(name, small_tiles):
    mask, T, S = PATHS[name]
    q, k, v = random_qkv(B=1, H=2, T=T, S=S, D=2, Hkv=1, requires_grad=True)
    with paths_taken() as taken:
        torch.autograd.gradcheck(lambda *qkv: attend(*qkv, mask=mask(1, S)), (q, k, v), fast_mode=T > 7)
    assert set(taken) == {"tiled" if "many" in name else name.removesuffix(" both ways")}


HIDDEN = {  # mask, T, S, path: in each, element 0 sees everything it may and element 1 has queries that see nothing
    "key mask": (lambda: padding([7, 0]), 5, 7, "fused, key mask"),
    "causal key mask": (
        lambda: causal() & padding(torch.arange(7) >= torch.tensor([[0], [3]])),
        7,
        7,
        "fused causal, key mask",
    ),
    "banded": (lambda: causal() & window(2) & padding(torch.arange(17) >= torch.tensor([[0], [3]])), 17, 17, "banded"),
    "banded both ways": (lambda: window(2) & padding([17, 3]), 17, 17, "banded"),
    "tiled": (lambda: dense(torch.arange(7).view(1, 7, 1) >= torch.tensor([0, 3]).view(2, 1, 1)), 7, 5, "tiled"),
    "tiled, many": (
        lambda: causal() & dense(torch.arange(67).view(1, 67, 1) >= torch.tensor([0, 65]).view(2, 1, 1)),
        67,
        67,
        "tiled",
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", [attend, in_steps])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("case", HIDDEN)
def test_a_row_that_sees_nothing_gives_zero_and_sends_gradient_zero(case, dtype, way, small_tiles):
    mask, T, S, path = HIDDEN[case]
    blind = ~mask().dense(T, S).any(-1, keepdim=True).expand(2, 3, T, 1)
    q, k, v = random_qkv(B=2, H=3, T=T, S=S, D=8, dtype=dtype, requires_grad=True)
    with paths_taken() as taken:
        out = way(q, k, v, mask=mask())
    assert taken == [path if way is attend else "in steps"]
    assert blind[1].any()
    assert torch.equal(out[blind.expand_as(out)], torch.zeros_like(out[blind.expand_as(out)]))
    assert out.isfinite().all()
    for grad in torch.autograd.grad(out, (q, k, v), blind.to(dtype).expand_as(out)):
        assert torch.equal(grad, torch.zeros_like(grad))


@pytest.mark.parametrize("way", [attend, in_steps])
@pytest.mark.parametrize("case", HIDDEN)
def test_gradients_stay_finite_when_keys_hidden_from_all_hold_nan(case, way):
    mask, T, S, _ = HIDDEN[case]
    mask = mask() & padding([S - 1, S - 2])
    unseen = ~mask.dense(T, S).any(-2).any(1)[:, None, :, None]
    q, k, v = random_qkv(B=2, H=3, T=T, S=S, D=8)
    clean = with_gradients(lambda *qkv: way(*qkv, mask=mask), q, k.masked_fill(unseen, 0), v.masked_fill(unseen, 0))
    broken = [t.masked_fill(unseen, math.nan) for t in (k, v)]
    found = with_gradients(lambda *qkv: way(*qkv, mask=mask), q, *broken)
    torch.testing.assert_close(found, clean, **EXACT)


@pytest.mark.parametrize("way", [attend, in_steps])
@given(case=st.sampled_from(list(PATHS)), bad=st.sampled_from([math.nan, math.inf, -math.inf]), data=st.data())
def test_what_a_row_may_not_see_cannot_harm_it(way, case, bad, data):
    mask, T, S = PATHS[case]
    mask = regard.attention.masks.as_mask(mask(2, S))
    where = data.draw(st.lists(st.integers(0, S - 1), min_size=1, max_size=3))
    in_k, in_v = data.draw(st.sampled_from([(True, False), (False, True), (True, True)]))
    q, k, v = random_qkv(B=2, H=3, T=T, S=S, D=8)
    clean = attend(q, k, v, mask=mask)
    for t, chosen in ((k, in_k), (v, in_v)):
        if chosen:
            t[:, :, where] = bad
    reached = mask.dense(T, S).expand(2, 3, T, S)[..., where].any(-1)
    torch.testing.assert_close(way(q, k, v, mask=mask)[~reached], clean[~reached], **EXACT)


def test_dropout_does_not_let_hidden_nan_through():
    q, k, v = random_qkv(B=2, H=3, T=5, S=5, D=8)
    v[:, :, -1] = math.nan
    assert attend(q, k, v, mask=causal(), dropout=0.1)[:, :, :-1].isfinite().all()


@given(seed=st.integers(0, 99), T=st.integers(2, 70), data=st.data())
def test_a_changed_future_changes_nothing_earlier(seed, T, data):
    torch.manual_seed(seed)
    now = data.draw(st.integers(0, T - 2))
    mask = data.draw(
        st.sampled_from([causal(), causal() & window(3), causal() & padding([T - 1]), causal() & ~window(2)])
    )
    q, k, v = random_qkv(B=1, H=2, T=T, S=T, D=8)
    before = attend(q, k, v, mask=mask)
    k[:, :, now + 1 :], v[:, :, now + 1 :] = 100 * torch.randn(2, 1, 2, T - now - 1, 8, dtype=torch.float64)
    torch.testing.assert_close(attend(q, k, v, mask=mask)[:, :, : now + 1], before[:, :, : now + 1], **EXACT)


@given(seed=st.integers(0, 99), S=st.integers(1, 70))
def test_permuting_keys_and_values_together_changes_nothing(seed, S):
    torch.manual_seed(seed)
    q, k, v = random_qkv(B=2, H=3, T=5, S=S, D=7)
    order, keep = torch.randperm(S), torch.rand(2, S) < 0.7
    found = attend(q, k[:, :, order], v[:, :, order], mask=padding(keep[:, order]))
    torch.testing.assert_close(found, attend(q, k, v, mask=padding(keep)), **EXACT)


@pytest.mark.parametrize("case", ["causal 65", "causal, lengths", "window", "documents", "left padded"])
def test_heads_and_texts_are_independent(case):
    mask, T, S, _, _ = CASES[case]
    q, k, v = random_qkv(B=3, H=6, T=T, S=S, D=8, Hkv=2)
    whole = attend(q, k, v, mask=mask(3, 6, T, S))
    alone = attend(q[:, 4:5], k[:, 1:2], v[:, 1:2], mask=mask(3, 1, T, S))
    torch.testing.assert_close(whole[:, 4:5], alone, **EXACT)
    q[2], k[2], v[2] = 3.0, 2.0, 1.0
    torch.testing.assert_close(attend(q, k, v, mask=mask(3, 6, T, S))[:2], whole[:2], **EXACT)


@given(
    seed=st.integers(0, 99),
    real=st.integers(1, 19),
    right=st.booleans(),
    masked=st.sampled_from(["", "causal", "window"]),
)
def test_padded_equals_unpadded(seed, real, right, masked):
    torch.manual_seed(seed)
    rule = {"": window(99), "causal": causal(), "window": causal() & window(3)}[masked]
    q, k, v = random_qkv(B=1, H=2, T=19, S=19, D=8)
    kept = slice(0, real) if right else slice(19 - real, 19)
    keep = torch.zeros(1, 19, dtype=torch.bool).index_fill_(1, torch.arange(19)[kept], True)
    found = attend(q, k, v, mask=rule & padding(keep))[:, :, kept]
    torch.testing.assert_close(found, attend(q[:, :, kept], k[:, :, kept], v[:, :, kept], mask=rule), **EXACT)


@pytest.mark.parametrize("way", [attend, in_steps])
def test_dropout_keeps_the_mean_and_the_seed_repeats_it(way):
    q, k, v = torch.zeros(3, 2, 500, 1), torch.zeros(3, 2, 500, 1), torch.ones(3, 2, 500, 1)
    torch.manual_seed(1)
    first = way(q, k, v, mask=causal(), dropout=0.4)
    torch.manual_seed(1)
    assert torch.equal(way(q, k, v, mask=causal(), dropout=0.4), first)
    assert not torch.equal(first, v)
    torch.testing.assert_close(first[:, :, 100:].mean(), torch.tensor(1.0), atol=0.01, rtol=0)


def test_a_trace_takes_the_readable_way_with_the_same_result():
    q, k, v = random_qkv(B=2, H=3, T=5, S=7, D=11)
    with paths_taken() as taken, trace() as steps:
        found = attend(q, k, v, mask=causal(), alibi=alibi_slopes(3))
    assert taken == ["in steps"]
    assert steps.names == ["scores", "mask", "scaled", "bias", "weights", "context"]
    torch.testing.assert_close(steps["context"], found)
    torch.testing.assert_close(attend(q, k, v, mask=causal(), alibi=alibi_slopes(3)), found, **EXACT)


def test_a_nan_in_the_future_costs_no_more_memory_than_tiles(small_tiles):
    q, k, v = random_qkv(B=2, H=3, T=67, S=67, D=8)
    v[:, :, 50:] = torch.nan
    found = attend(q, k, v, mask=causal())
    torch.testing.assert_close(found[:, :, :50], attend(q, k, v.nan_to_num(), mask=causal())[:, :, :50], **EXACT)
    assert found[:, :, 50:].isnan().all()


@pytest.mark.parametrize("factor", [1.0, 300.0, 3000.0])
def test_padding_stays_hidden_under_causal_attention_however_large_the_scores(factor):
    q, k, v = random_qkv(B=2, H=3, T=11, S=11, D=8)
    options = {"mask": causal() & padding([11, 4])}
    torch.testing.assert_close(
        attend(factor * q, factor * k, v, **options), in_steps(factor * q, factor * k, v, **options)
    )


def test_another_thread_is_neither_traced_nor_observed():
    q, k, v = random_qkv(B=1, H=2, T=5, S=5, D=8)
    with paths_taken() as taken, trace() as steps:
        other = threading.Thread(target=attend, args=(q, k, v))
        other.start()
        other.join()
    assert taken == []
    assert len(steps) == 0

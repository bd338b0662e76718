import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers import random_qkv
from regard import MultiHeadAttention, Rotary, alibi_slopes, sinusoidal
from regard.attention.call import QK
from regard.attention.positions import Stretch, added_to_scores


def test_sinusoidal_is_the_papers_formula():
    found = sinusoidal(7, 10)
    for position in range(7):
        for i in range(0, 10, 2):
            angle = position / 10_000 ** (i / 10)
            wanted = torch.tensor([math.sin(angle), math.cos(angle)])
            torch.testing.assert_close(found[position, i : i + 2], wanted)


def test_no_positions_give_an_empty_table():
    assert sinusoidal(0, 4).shape == (0, 4)


@pytest.mark.parametrize(("width", "other"), [(7, 8), (1, 2), (0, 2)])
def test_an_odd_width_says_which_would_do(width, other):
    with pytest.raises(
        ValueError, match=rf"width \({width}\) must be even, a sine and a cosine for each wave; try {other}"
    ):
        sinusoidal(3, width)


def turned_by_hand(t, positions, base, interleaved):
    """Each pair of channels as one complex number, multiplied by e^(i·angle)."""
    D = t.shape[-1]
    pairs = t.unflatten(-1, (D // 2, 2)) if interleaved else t.unflatten(-1, (2, D // 2)).mT
    angles = positions[..., None] * base ** (-torch.arange(0, D, 2, dtype=torch.float64) / D)
    spun = torch.view_as_complex(pairs.contiguous()) * torch.polar(torch.ones_like(angles), angles)
    back = torch.view_as_real(spun)
    return back.flatten(-2) if interleaved else back.mT.flatten(-2)


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_multiplies_pairs_of_channels_as_complex_numbers(interleaved):
    q, k, _ = random_qkv(B=2, H=4, T=5, S=5, D=6, Hkv=2)
    positions = torch.tensor([0, 1, 5, 100, 99_999])
    found = Rotary(500.0, interleaved).rotate(q, k, positions)
    wanted = tuple(turned_by_hand(t, positions, 500.0, interleaved) for t in (q, k))
    torch.testing.assert_close(found, wanted)


def test_each_text_may_have_its_own_positions():
    q, k, _ = random_qkv(B=2, H=3, T=5, S=5, D=6)
    positions = torch.tensor([[0, 1, 2, 3, 4], [3, 1, 4, 1, 5]])
    together = Rotary().rotate(q, k, positions)
    alone = [Rotary().rotate(q[b : b + 1], k[b : b + 1], positions[b]) for b in range(2)]
    torch.testing.assert_close(together, tuple(torch.cat(ts) for ts in zip(*alone, strict=True)))


def test_the_first_position_turns_nothing():
    q, k, _ = random_qkv(B=2, H=3, T=1, S=1, D=6)
    torch.testing.assert_close(Rotary().rotate(q, k, torch.tensor([0])), (q, k))


@given(shift=st.integers(0, 10_000), interleaved=st.booleans())
def test_rotary_scores_depend_on_distance_alone(shift, interleaved):
    q, k, _ = random_qkv(B=1, H=2, T=7, S=7, D=10)
    rotary = Rotary(interleaved=interleaved)
    (q1, k1), (q2, k2) = rotary.rotate(q, k, torch.arange(7)), rotary.rotate(q, k, torch.arange(7) + shift)
    torch.testing.assert_close(q1 @ k1.mT, q2 @ k2.mT, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_far_positions_are_turned_precisely_in_low_precision(dtype):
    q, k, _ = random_qkv(B=1, H=2, T=3, S=3, D=8, dtype=dtype)
    positions = torch.tensor([1000, 1001, 1002])
    found, _ = Rotary().rotate(q, k, positions)
    assert found.dtype is dtype
    wanted, _ = Rotary().rotate(q.double(), k.double(), positions)
    torch.testing.assert_close(found.double(), wanted, rtol=0, atol=max(4 * torch.finfo(dtype).eps, 5e-4))


@pytest.mark.parametrize("base", [0.0, -1.0, math.nan])
def test_a_base_that_is_not_above_zero_is_refused(base):
    with pytest.raises(
        ValueError, match=rf"the rotary base \({base}\) must be above 1; 10000 is usual, 500000 for Llama 3"
    ):
        Rotary(base=base)


@pytest.mark.parametrize("num_heads", [1, 2, 8, 16])
def test_alibi_slopes_are_a_geometric_row(num_heads):
    wanted = torch.tensor([2 ** (-8 * (h + 1) / num_heads) for h in range(num_heads)])
    torch.testing.assert_close(alibi_slopes(num_heads), wanted, rtol=0, atol=0)


@pytest.mark.parametrize("num_heads", [3, 12, 25])
def test_alibi_slopes_between_powers_of_two_fill_up_from_the_next_row(num_heads):
    below = 2 ** int(math.log2(num_heads))
    wanted = torch.cat([alibi_slopes(below), alibi_slopes(2 * below)[::2][: num_heads - below]])
    torch.testing.assert_close(alibi_slopes(num_heads), wanted, rtol=0, atol=0)


def test_no_heads_have_no_slopes_and_that_is_said():
    with pytest.raises(ValueError, match=r"num_heads \(0\) must be .*at least 1"):
        alibi_slopes(0)


def alibi_bias(slopes, rows, cols, shift, dtype=torch.float32):
    """What ALiBi adds to the scores of these queries and keys, of a call whose last query is at the last key."""
    q, k = (torch.zeros(1, len(slopes), T, 2, dtype=dtype) for T in (1, 1 + shift))
    return added_to_scores(QK(q=q, k=k, alibi=slopes), rows, cols)[0]


def test_alibi_lowers_scores_by_slope_times_distance():
    slopes, rows, cols = torch.tensor([0.5, 0.25]), torch.arange(1, 3), torch.arange(5)
    wanted = torch.tensor([[-3.0, -2.0, -1.0, 0.0, -1.0], [-4.0, -3.0, -2.0, -1.0, 0.0]])
    torch.testing.assert_close(alibi_bias(slopes, rows, cols, shift=2), torch.stack([wanted / 2, wanted / 4]))


def test_in_float64_alibi_is_formed_in_float64():
    slopes, rows, cols = (
        alibi_slopes(12, dtype=torch.float64),
        torch.arange(3) + 100_001,
        torch.arange(100_000, 100_007),
    )
    exact = torch.tensor([2 ** -(i + 1) for i in range(8)] + [2 ** -(i + 0.5) for i in range(4)], dtype=torch.float64)
    torch.testing.assert_close(slopes, exact, rtol=1e-15, atol=0)
    assert alibi_slopes(12).dtype is torch.float32
    far = alibi_bias(slopes.float(), torch.tensor([16_777_217]), torch.tensor([0]), 0, torch.float64)
    torch.testing.assert_close(far[:, 0, 0], -16_777_217 * slopes.float().double(), rtol=0, atol=0)
    bias = alibi_bias(slopes, rows, cols, 0, torch.float64)
    torch.testing.assert_close(bias, -exact[:, None, None] * (rows[:, None] - cols).abs(), rtol=1e-15, atol=0)


def test_a_layer_in_float64_has_alibi_in_float64():
    x = torch.randn(1, 7, 24, dtype=torch.float64)
    layer = MultiHeadAttention(24, 24, 7, 0.0, num_heads=12, alibi=True).double()
    q, k, v = (f(x).view(1, 7, 12, 2).transpose(1, 2) for f in (layer.W_query, layer.W_key, layer.W_value))
    slopes = torch.tensor([2 ** -(i + 1) for i in range(8)] + [2 ** -(i + 0.5) for i in range(4)], dtype=torch.float64)
    distance = (torch.arange(7)[:, None] - torch.arange(7)).abs()
    scores = (q @ k.mT / 2**0.5 - slopes[:, None, None] * distance).masked_fill(distance.triu(1) > 0, -torch.inf)
    right = layer.out_proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
    torch.testing.assert_close(layer(x), right, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(layer(x, return_weights=True)[0], right, rtol=1e-12, atol=1e-14)


def test_a_stretch_slows_every_wave_alike_where_no_original_context_is_told():
    q, k, _ = random_qkv(B=2, H=3, T=5, S=5, D=6)
    positions = torch.tensor([0, 1, 2, 30, 1000])
    found = Rotary(500.0, stretch=Stretch(4.0)).rotate(q, k, 4 * positions)
    torch.testing.assert_close(found, Rotary(500.0).rotate(q, k, positions))


@pytest.mark.parametrize(
    ("kind", "more"), [("linear", {}), ("llama3", {"low_freq_factor": 1.5, "high_freq_factor": 5.0})]
)
def test_stretched_angles_are_those_of_transformers(kind, more):
    modeling = pytest.importorskip("transformers.models.llama.modeling_llama")
    transformers = pytest.importorskip("transformers")
    told = {"rope_type": kind, "rope_theta": 500.0, "factor": 8.0, **more}
    if kind == "llama3":
        told["original_max_position_embeddings"] = 211
    config = transformers.LlamaConfig(
        hidden_size=2 * 46, num_attention_heads=2, max_position_embeddings=1999, rope_parameters=told
    )
    positions = torch.arange(1999)
    cos, sin = modeling.LlamaRotaryEmbedding(config)(torch.zeros(1), positions[None])
    stretch = Stretch(8.0) if kind == "linear" else Stretch(8.0, original=211, low=1.5, high=5.0)
    found = Rotary(500.0, stretch=stretch).angles(positions, 46)
    # The last bit of a wave, times a position of thousands, is what they may differ by.
    torch.testing.assert_close(found, (cos[0, :, :23], sin[0, :, :23]), rtol=0, atol=5e-4)


def test_a_stretch_leaves_fast_waves_and_blends_between():
    waves = 2 * math.pi / torch.tensor([10.0, 40.0, 80.0, 1000.0])  # 10, 2.5, 1.25 and 0.1 turns in 100
    found = Stretch(8.0, original=100, low=1.0, high=4.0).slowed(waves)
    kept = torch.tensor([1.0, 0.5, 0.25 / 3, 0.0])
    torch.testing.assert_close(found, waves * kept + waves / 8 * (1 - kept))


def test_a_stretch_is_named_only_where_there_is_one():
    assert repr(Rotary()) == "Rotary(base=10000.0, interleaved=False)"
    assert repr(Rotary(stretch=Stretch(2.0))).endswith(
        "interleaved=False, stretch=Stretch(factor=2.0, original=None, low=1.0, high=4.0))"
    )


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"factor": 0.5}, r"factor \(0.5\) must be at least 1; Llama 3.1 has 8"),
        ({"factor": math.nan}, r"factor \(nan\) must be at least 1"),
        ({"factor": 2.0, "original": 0}, r"original \(0\) must be a whole number of at least 1"),
        ({"factor": 2.0, "low": 4.0}, r"low \(4.0\) must be above 0 and below high \(4.0\); Llama 3.1 has 1 and 4"),
    ],
)
def test_a_stretch_that_means_nothing_is_refused(told, message):
    with pytest.raises(ValueError, match=message):
        Stretch(**told)

"""The contenders of the layer benchmark: each computes what float64 does."""

import pytest
import torch

from regard.bench.peers import (
    CONTENDERS,
    TEXTBOOK,
    TOLERANCE,
    Distance,
    Shape,
    Weights,
    ask,
    distance,
    memory_needed,
    refusal,
)

TINY = Shape(width=33, heads=3, batch=2, tokens=7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", CONTENDERS)
def test_every_peer_agrees_with_float64(name, dtype):
    weights = Weights.random(TINY.width, dtype)
    try:
        built = CONTENDERS[name](TINY, weights).to(dtype)
    except ImportError as error:
        pytest.skip(f"{name} is not installed: {error}")
    assert refusal(distance(built, ask(TINY, weights, dtype, "cpu")), dtype) is None


def test_the_answers_are_those_of_the_whole_formula_where_only_some_rows_are_asked_for():
    shape = Shape(width=10, heads=2, batch=3, tokens=131)
    weights = Weights.random(shape.width, torch.float64)
    question = ask(shape, weights, torch.float64, "cpu")
    documents = CONTENDERS[TEXTBOOK](shape, weights).double()
    assert question.rows.tolist()[0] == 0
    assert question.rows.tolist()[-1] == 130
    assert len(set(question.rows.tolist())) == 64
    torch.testing.assert_close(question.out, documents(question.x)[:, question.rows])
    x = question.x.clone().requires_grad_()
    torch.testing.assert_close(question.x_grad, torch.autograd.grad(documents(x), x, question.grad)[0])


@pytest.mark.parametrize(("out", "x_grad"), [(0.7, 0.0), (float("nan"), 0.0)])
def test_a_wrong_output_is_refused_and_nan_is_wrong(out, x_grad):
    why = refusal(Distance(out, x_grad), torch.float32)
    assert why == f"not timed: its output is {out:.2g} away from float64, and 0.0001 is allowed in float32"


def test_a_distance_at_the_tolerance_is_allowed():
    limit = TOLERANCE[torch.bfloat16]
    assert refusal(Distance(limit, limit), torch.bfloat16) is None
    assert "input gradient" in refusal(Distance(limit, 2 * limit), torch.bfloat16)


def test_weights_are_drawn_by_seed_and_stacked_in_order():
    first, same, other = (Weights.random(11, torch.bfloat16, seed) for seed in (3, 3, 4))
    torch.testing.assert_close(first.qkv(), torch.cat([same.query, same.key, same.value]), rtol=0, atol=0)
    assert not torch.equal(first.query, other.query)
    assert first.out.dtype is torch.bfloat16


def test_only_layers_that_keep_weights_need_memory_by_the_square_of_the_length():
    short, long = (Shape(33, 3, 2, tokens) for tokens in (101, 1010))
    for name in CONTENDERS:
        growth = memory_needed(name, long, torch.float32) / memory_needed(name, short, torch.float32)
        assert (growth > 20) == (name in (TEXTBOOK, "nn.MHA weights")), name


@pytest.mark.parametrize("sizes", [(770, 12, 1, 8), (0, 1, 1, 8), (12, 12, 0, 8)])
def test_a_shape_that_no_layer_can_have_is_refused(sizes):
    with pytest.raises(
        ValueError, match=r"width \(\d+\) must be a multiple of heads \(\d+\), and all sizes at least 1"
    ):
        Shape(*sizes)

from dataclasses import replace

import torch
from torch.testing import assert_close

from mistakes.cases import mistake, random_case
from regard.mistakes.formula import Formula, Projection
from regard.mistakes.projecting import MISTAKES


def test_swapped_projections_make_keys_of_values():
    case = random_case()
    name = "q, k, v swapped: the keys are made with W_value and the values are made with W_key"
    _, keys, values = mistake(MISTAKES, name).act(case)
    assert_close(keys, case.projections["W_value"](case.x))
    assert_close(values, case.projections["W_key"](case.x))


def test_transposed_weights_need_square_ones():
    one = mistake(MISTAKES, "transposed weights")
    case = random_case(d_in=21)
    assert one.applies(case)
    assert not one.applies(random_case())
    weight, bias = case.projections["W_query"]
    assert_close(one.act(case)[0], case.x @ weight + bias)


def test_each_head_may_project_its_piece_with_the_same_weights_or_with_its_own():
    one = mistake(MISTAKES, "embedding split before projection")
    x = torch.randn(2, 5, 21, dtype=torch.float64)
    shared = {name: Projection(torch.randn(7, 7, dtype=torch.float64)) for name in ("W_query", "W_key", "W_value")}
    case = replace(random_case(), x=x, projections=shared)
    assert one.applies(case)
    assert case.width == 21
    assert_close(
        one.act(case)[0], torch.cat([x[..., 7 * h : 7 * h + 7] @ shared["W_query"].weight.T for h in range(3)], -1)
    )
    own = {name: Projection(torch.randn(21, 7, dtype=torch.float64)) for name in shared}
    weights = own["W_query"].weight.view(3, 7, 7)
    expected = torch.cat([x[..., 7 * h : 7 * h + 7] @ weights[h].T for h in range(3)], -1)
    assert_close(one.act(replace(case, projections=own))[0], expected)
    assert replace(Formula(), project=one.act).steps(case)["out"].shape == (2, 5, 21)

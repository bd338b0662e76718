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


def test_one_weight_may_be_used_the_other_way_round():
    case = random_case(d_in=21)
    weight, bias = case.projections["W_value"]
    queries, _, values = mistake(MISTAKES, "transposed weights: of the values").act(case)
    assert_close(queries, case.projections["W_query"](case.x))
    assert_close(values, case.x @ weight + bias)


def test_values_may_be_x_itself_where_its_width_allows_that():
    one = mistake(MISTAKES, "not projected: the values are x itself")
    assert not one.applies(random_case())
    assert one.applies(random_case(H=1, out=False))
    case = random_case(d_in=21)
    assert one.act(case)[2] is case.x


def test_a_bias_may_be_left_out_or_added_twice():
    case = random_case()
    weight, bias = case.projections["W_query"]
    assert_close(mistake(MISTAKES, "bias left out: of the queries").act(case)[0], case.x @ weight.T)
    assert_close(mistake(MISTAKES, "bias added twice: of the queries").act(case)[0], case.x @ weight.T + 2 * bias)
    assert not mistake(MISTAKES, "bias left out: of the values").applies(
        replace(case, projections={name: Projection(one.weight) for name, one in case.projections.items()})
    )


def test_queries_keys_and_values_may_be_made_of_the_wrong_one_of_two_texts():
    case = random_case(causal=False, source=torch.randn(2, 4, 13, dtype=torch.float64))
    one = mistake(MISTAKES, "inputs swapped: the values are made of x")
    assert one.applies(case)
    assert not one.applies(random_case())
    assert_close(one.act(case)[2], case.projections["W_value"](case.x))


def test_tensors_that_come_from_outside_may_be_taken_for_each_other():
    qkv = tuple(torch.randn(2, 5, 21, dtype=torch.float64) for _ in range(3))
    one = mistake(MISTAKES, "q, k, v swapped: the values are used as keys and the keys are used as values")
    assert one.applies(random_case(qkv=qkv))
    assert one.act(qkv, random_case())[1] is qkv[2]


def test_the_mean_of_all_tokens_holds_the_future():
    case = random_case()
    read = mistake(MISTAKES, "mean of all tokens subtracted").act(case)
    assert_close(read.x.sum(1), torch.zeros(2, 13, dtype=torch.float64))

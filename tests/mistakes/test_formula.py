from dataclasses import replace

import torch
from torch.testing import assert_close

import regard
from mistakes.cases import random_case
from regard.mistakes.formula import RIGHT, Formula


def layer_of(case, num_kv_heads=None):
    E = case.width
    layer = regard.MultiHeadAttention(
        case.x.shape[-1], E, 11, 0.0, case.num_heads, qkv_bias=True, num_kv_heads=num_kv_heads, causal=case.causal
    ).double()
    for name, (weight, bias) in case.projections.items():
        getattr(layer, name).weight.data, getattr(layer, name).bias.data = weight, bias
    return layer


def test_the_formula_is_the_layer_to_ship():
    for case in (random_case(), random_case(causal=False), random_case(H=1, D=11)):
        assert_close(Formula()(case), layer_of(case)(case.x))


def test_grouped_queries_are_those_of_the_layer_to_ship():
    case = random_case(H=6, Hkv=3)
    assert_close(Formula()(case), layer_of(case, num_kv_heads=3)(case.x))


def test_a_mask_that_is_passed_decides_what_is_seen():
    case = random_case(causal=False)
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    assert_close(Formula()(replace(case, mask=mask)), Formula()(replace(case, causal=True)))


def test_without_projections_x_attends_to_itself():
    x = random_case().x
    case = replace(random_case(causal=False), projections={}, num_heads=1, scaled=False)
    assert_close(Formula()(case), torch.softmax(x @ x.mT, -1) @ x)


def test_a_row_without_keys_shows_how_hidden_scores_are_written():
    mask = torch.ones(5, 5, dtype=torch.bool).tril(-1)
    case = random_case(causal=False, mask=mask)
    steps = {filling: Formula().steps(replace(case, filling=filling)) for filling in ("-inf", "zero", "large", "added")}
    assert steps["-inf"]["weights"][:, :, 0].isnan().all()
    assert (steps["zero"]["weights"][:, :, 0] == 0).all()
    assert_close(steps["large"]["weights"][:, :, 0], torch.full((2, 3, 5), 0.2, dtype=torch.float64))
    assert_close(
        steps["added"]["weights"][:, :, 0], steps["added"]["scaled"][:, :, 0].softmax(-1), rtol=1e-5, atol=1e-6
    )


def test_heads_may_alternate_if_split_and_merge_agree():
    case = random_case(out=False)
    whole, alternating = RIGHT[0].steps(case), RIGHT[1].steps(case)
    assert not torch.allclose(whole["out"], alternating["out"])
    assert_close(alternating["split"][:, 1], whole["queries"][..., 1::3])


def test_known_steps_are_computed_once():
    case, known, calls = random_case(), {}, []

    def scale(scores, case):
        calls.append(1)
        return scores

    formula = Formula(scale=scale)
    formula(case, known)
    replace(formula, output=lambda concat, case: concat)(case, known)
    assert len(calls) == 1

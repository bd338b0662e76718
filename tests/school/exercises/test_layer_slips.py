"""Rarer slips in a layer: each is wrong, and none is another or one that every check knows."""

from collections import defaultdict

import torch

from mistakes.cases import random_case
from regard.mistakes.formula import Formula
from regard.mistakes.search import MISTAKES, outputs, same
from regard.school.exercises.layer_slips import SLIPS

CASES = [random_case(), random_case(causal=False)]


def test_each_is_wrong_and_none_is_another():
    for case in CASES:
        seen = defaultdict(list, {"right": [Formula()(case)]})
        for one in (*SLIPS, *MISTAKES):
            if one.applies(case):
                seen[one.name] += outputs(case, (one,))
        slips = {one.name for one in SLIPS if one.applies(case)}
        for name in slips:
            others = [
                other for other in seen if other != name and any(same(a, b) for a in seen[name] for b in seen[other])
            ]
            assert (name, others) == (name, [])


def test_each_is_of_some_layer_and_says_its_sizes():
    for one in SLIPS:
        of = [case for case in CASES if one.applies(case)]
        assert [case for case in of if "{" in one.describe(case)] == []
        assert len(of) > 0


def test_a_slip_computes_what_its_name_says():
    case = random_case(causal=False)
    act = next(one.act for one in SLIPS if one.name == "heads averaged, and the mean repeated")
    context = torch.randn(2, case.num_heads, 5, case.head_dim)
    seen = act(context, case).unflatten(-1, (case.num_heads, -1))
    torch.testing.assert_close(seen, context.mean(1)[:, :, None].expand_as(seen))

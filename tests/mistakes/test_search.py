"""Separability: at the sizes of a check, no two different mistakes, and no two pairs, give the same output.

Those that do are the same function: COINCIDENCES lists them with the reason.
"""

from dataclasses import replace
from itertools import combinations

import pytest
import torch

from mistakes.cases import random_case
from regard.mistakes.formula import QKV, Case, Formula
from regard.mistakes.search import MISTAKES, compatible, explanations, outputs, same, variants


def pieces():
    """Projections that read a piece of x."""
    whole, small = random_case(d_in=21), random_case(H=1, d_in=7).projections
    return replace(
        whole, projections={**{name: small[name] for name in QKV}, "out_proj": whole.projections["out_proj"]}
    )


MASK = torch.ones(5, 5, dtype=torch.bool).tril()
CASES = {
    "causal": random_case(),
    "square": random_case(d_in=21),
    "bidirectional": random_case(causal=False),
    "one head": random_case(H=1),
    "grouped": random_case(H=6, Hkv=3),
    "mask passed": random_case(causal=False, mask=MASK),
    "a constant in the code": random_case(factor=0.125),
    "simplified": Case(random_case().x * 0.7, scaled=False),
    "one text in pieces": pieces(),
}


MASKS = ("no causal mask", "mask argument ignored", *(one.name for one in MISTAKES if one.step == "see"))
INVERTED, KEPT = "mask polarity inverted", "mask polarity inverted, the diagonal kept"
HIDDEN, SIGN = "mask off by one: the token itself hidden", "wrong sign of infinity"
# Mistakes that are the same function, by how hidden scores are written: these, those, and why.
COINCIDENCES = {
    "any": [
        (
            {"heads split alternately, joined whole", "reshape that hides a wrong merge"},
            set(),
            "both take the heads for the last axis: split and merge agree, and that is right",
        )
    ],
    "-inf": [({INVERTED, SIGN}, {"scores ignored"}, "as below, with +1e9")],
    "large": [({INVERTED, SIGN}, {"scores ignored"}, "every score of the past is 1e9, so all its weights are alike")],
    "added": [
        ({INVERTED, SIGN}, set(), "the two signs cancel"),
        ({KEPT, SIGN}, {HIDDEN}, "+1e9 for the others is −1e9 for these: the mask is turned round"),
        ({HIDDEN, SIGN}, {KEPT}, "the same"),
        ({SIGN}, {INVERTED}, "the same, for the right mask"),
        *(
            ({axis, mask}, {axis}, "−1e9 in every head, or every text, cancels in a softmax over them: no mask is seen")
            for axis in ("softmax over the heads", "softmax over the batch")
            for mask in MASKS
        ),
    ],
}


def names(variant):
    return " + ".join(sorted(one.name for one in variant))


def meaning(variant, filling, used):
    """The mistakes of a variant, with those that are the same function as others replaced by them."""
    mistakes = {one.name for one in variant}
    for these, those, why in (*COINCIDENCES["any"], *COINCIDENCES.get(filling, ())):
        if these <= mistakes:
            mistakes = mistakes - these | those
            used.add(why)
    return " + ".join(sorted(mistakes))


def near(case, filling, used):
    """The pairs of different meaning that are less than one percent apart, and how many variants were compared.

    Outputs with NaN are left out: a check runs such a layer again, with large numbers in place of infinities.
    """
    by_shape, known = {}, {}
    for size in range(3):
        for variant in variants(case, size):
            for out in outputs(case, variant, (filling,), known):
                if not out.isnan().any():
                    by_shape.setdefault(out.shape, []).append((meaning(variant, filling, used), out.flatten()))
    found = set()
    for group in by_shape.values():
        stacked = torch.stack([out for _, out in group])
        distances = torch.cdist(stacked, stacked, p=torch.inf) / stacked.abs().amax(-1)[:, None]
        for i, j in (distances < 0.01).triu(1).nonzero().tolist():
            found |= {(group[i][0], group[j][0])} if group[i][0] != group[j][0] else set()
    return found, sum(map(len, by_shape.values()))


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("filling", ["-inf", "large", "added"])
def test_variants_are_at_least_one_percent_apart_or_the_same_function(kind, filling):
    found, number = near(CASES[kind], filling, set())
    assert number > {"simplified": 6, "one text in pieces": 20}.get(kind, 150)
    assert found == set()


def test_every_coincidence_in_the_list_occurs():
    used = set()
    for kind, filling in (("causal", "-inf"), ("causal", "large"), ("causal", "added")):
        near(CASES[kind], filling, used)
    assert used == {why for listed in COINCIDENCES.values() for _, _, why in listed}


@pytest.mark.parametrize("kind", CASES)
def test_every_single_mistake_explains_its_own_output(kind):
    case = CASES[kind]
    for (one,) in variants(case, 1):
        out = next(outputs(case, (one,)), None)
        if out is not None and not out.isnan().all():
            assert one.name in [variant[0].name for variant in explanations(case, out)]


def test_a_right_output_has_no_mistakes_and_another_no_explanation():
    case = CASES["causal"]
    assert explanations(case, Formula()(case)) == [()]
    assert explanations(case, torch.randn(2, 5, 21, dtype=torch.float64)) is None


def test_a_pair_is_explained_by_both():
    case = CASES["causal"]
    pair = next(v for v in variants(case, 2) if names(v) == "mask off by one: one future token seen + no scale")
    assert [names(one) for one in explanations(case, next(outputs(case, pair)))] == [names(pair)]


def test_how_a_mask_hides_means_nothing_without_a_mask():
    without = next(one for one in MISTAKES if one.name == "no causal mask")
    after = next(one for one in MISTAKES if one.name == "mask after softmax without renormalising")
    assert not compatible(without, after)
    assert all(a.step != b.step for a, b in combinations(MISTAKES, 2) if compatible(a, b))


def test_nan_is_the_same_only_in_the_same_places():
    a = torch.tensor([1.0, torch.nan, 3.0])
    assert same(a, a + 1e-9)
    assert not same(a, torch.tensor([1.0, 2.0, 3.0]))
    assert not same(a, torch.tensor([[1.0, torch.nan, 3.0]]))

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
from sampled import quick_only


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
SWAPPED = "q, k, v swapped: the queries are made with W_key and the keys are made with W_query"
SAME = "one projection used twice: the keys are made with W_query"
HIDDEN, SIGN = "mask off by one: the token itself hidden", "wrong sign of infinity"
AXES = ("softmax over the heads", "softmax over the batch")
ALIKE = [
    ({axis, filled}, {axis}, "hidden scores are the same number in every head and text, whatever it is")
    for axis in AXES
    for filled in ("hidden scores set to 0", SIGN)
]
# Mistakes that are the same function, by how hidden scores are written: these, those, and why.
COINCIDENCES = {
    "any": [
        (
            {"heads split alternately, joined whole", "reshape that hides a wrong merge"},
            set(),
            "both take the heads for the last axis: split and merge agree, and that is right",
        ),
        ({"scaled twice"}, {"missing root"}, "1/√d twice is 1/d: what is scaled once tells"),
        ({"integer division in the scale: it is 1"}, {"no scale"}, "divided by 1; the text tells"),
        ({"integer division in the scale: it is 0"}, {"scores ignored"}, "times 0; the text tells"),
        (
            {"batch and heads mixed"},
            {"split without transpose", "merge without transposing back"},
            "both in one view of B · H; the text tells",
        ),
        ({SAME, "scale by √T"}, {SAME}, "a query is most like its own key: nearer than 1%, as the softmax saturates"),
        ({"mask value too small: −10"}, set(), "exp(−10) is 0.00005: nearer than 1%, and farther than the tolerance"),
        ({"no softmax", "hidden scores set to 0"}, {"no softmax"}, "without a softmax, a score of 0 is hidden"),
        (
            {"no softmax", "mask after softmax without renormalising"},
            {"no softmax"},
            "without a softmax, before and after it are the same",
        ),
        ({"no softmax", "scaled after the softmax"}, {"no softmax"}, "without a softmax, every factor is a scale"),
        (
            {"weights transposed: summed over the queries"},
            {"softmax over the queries", SWAPPED},
            "transposed weights are those of keys that ask queries",
        ),
        (
            {"softmax over the queries", "bias left out: of the queries"},
            {"softmax over the queries"},
            "the bias of the queries adds the same to the scores of every query",
        ),
    ],
    "-inf": [({INVERTED, SIGN}, {"scores ignored"}, "as below, with +1e9"), *ALIKE],
    "large": [
        ({INVERTED, SIGN}, {"scores ignored"}, "every score of the past is 1e9, so all its weights are alike"),
        *ALIKE,
    ],
    "added": [
        ({INVERTED, SIGN}, set(), "the two signs cancel"),
        ({KEPT, SIGN}, {HIDDEN}, "+1e9 for the others is −1e9 for these: the mask is turned round"),
        ({HIDDEN, SIGN}, {KEPT}, "the same"),
        ({SIGN}, {INVERTED}, "the same, for the right mask"),
        ({"0/1 mask added"}, {"mask value too small: −1"}, "1 more where it is seen is 1 less where it is hidden"),
        *(
            ({axis, mask}, {axis}, "−1e9 in every head, or every text, cancels in a softmax over them: no mask is seen")
            for axis in AXES
            for mask in (*MASKS, "only some heads masked")
            if (axis, mask) != ("softmax over the heads", "only some heads masked")
        ),
    ],
}


def names(variant):
    return " + ".join(sorted(one.name for one in variant))


def meaning(variant, filling, used):
    """The mistakes of a variant, with those that are the same function as others replaced by them.

    Activations are nearly alike where numbers are small, gelu and silu of scores for one: the text says which it is.
    """
    mistakes = {one.name.partition(": ")[0] if one.family == "activation inside" else one.name for one in variant}
    for these, those, why in (*COINCIDENCES["any"], *COINCIDENCES.get(filling, ())):
        if these <= mistakes:
            mistakes = mistakes - these | those
            used.add(why)
    return " + ".join(sorted(mistakes))


def near(case, filling, used):
    """The pairs of different meaning that are less than one percent apart, and how many variants were compared.

    Outputs with NaN are left out: a check runs such a layer again, with large numbers in place of infinities. So are
    those in which such numbers hide all others. Of the mistakes that are tried only where the text shows them, one for
    each step is in the pairs.
    """
    by_shape, known, written = {}, {}, {one.step: one for one in MISTAKES if one.written and not one.rare}
    pairs = [one for one in MISTAKES if not one.written or written.get(one.step) is one]
    pairs = [one for one in pairs if one.family != "norm inside"]  # which takes away what other mistakes change
    for size, mistakes in ((0, MISTAKES), (1, MISTAKES), (2, pairs)):
        for variant in variants(case, size, mistakes):
            for out in outputs(case, variant, (filling,), known):
                if not out.isnan().any() and out.abs().max() < 1e6:
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
    for kind, filling in (("causal", "-inf"), ("causal", "large"), ("causal", "added"), ("bidirectional", "-inf")):
        near(CASES[kind], filling, used)
    assert used == {why for listed in COINCIDENCES.values() for _, _, why in listed}


@pytest.mark.parametrize("kind", quick_only(["causal"], CASES))
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
    integer = "integer division in the scale: it is 1 + mask off by one: one future token seen"  # the text tells
    assert [names(one) for one in explanations(case, next(outputs(case, pair)))] == [names(pair), integer]


def test_how_a_mask_hides_means_nothing_without_a_mask():
    without = next(one for one in MISTAKES if one.name == "no causal mask")
    after = next(one for one in MISTAKES if one.name == "mask after softmax without renormalising")
    assert not compatible(without, after)
    assert all(not a.acts.keys() & b.acts.keys() for a, b in combinations(MISTAKES, 2) if compatible(a, b))


def test_nan_is_the_same_only_in_the_same_places():
    a = torch.tensor([1.0, torch.nan, 3.0])
    assert same(a, a + 1e-9)
    assert not same(a, torch.tensor([1.0, 2.0, 3.0]))
    assert not same(a, torch.tensor([[1.0, torch.nan, 3.0]]))

import pytest
import torch
from torch.nn import functional as F

from regard.school.check.compare.linear_maps import ParameterIndex, bases, fit_affine, normed

B, T, E, H, D = 29, 5, 13, 3, 7


def random(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


X, WEIGHT, BIAS = random(B, T, E), random(H * D, E, seed=1), random(H * D, seed=2)


def heads(t):
    return t.unflatten(-1, (H, D)).transpose(1, 2)


def test_the_matrix_and_the_bias_of_a_projection_are_found():
    found = fit_affine(heads(F.linear(X, WEIGHT, BIAS)), X)
    assert not found.has_positions
    torch.testing.assert_close(found.weight[0].flatten(0, 1), WEIGHT)
    torch.testing.assert_close(found.bias[0].flatten(), BIAS)
    torch.testing.assert_close(found.joined[0, ..., -1], found.bias[0])


def test_a_map_that_changes_with_the_position_is_found_for_every_position():
    turns = random(T, 1, seed=3)
    found = fit_affine(heads(F.linear(X, WEIGHT)) * turns, X)
    assert found.has_positions
    assert not found.adds_positions
    torch.testing.assert_close(found.weight.flatten(1, 2), turns[..., None] * WEIGHT)


def test_what_only_adds_positions_keeps_one_matrix():
    found = fit_affine(heads(F.linear(X + random(T, E, seed=4), WEIGHT)), X)
    assert found.has_positions
    assert found.adds_positions


@pytest.mark.parametrize("change", [torch.relu, lambda t: t.roll(1, 2), lambda t: t.cumsum(2)])
def test_an_activation_or_another_token_leaves_a_remainder(change):
    assert fit_affine(change(heads(F.linear(X, WEIGHT))), X) is None


def test_too_few_texts_prove_nothing():
    few = X[:2, :3]
    assert fit_affine(heads(F.linear(few, WEIGHT)), few) is None


def test_projections_of_a_norm_are_found_with_the_weights_of_the_norm():
    g, b = random(E, seed=5), random(E, seed=6)
    y = heads(F.linear(F.layer_norm(X, (E,), g, b), WEIGHT))
    index, places = ParameterIndex({"w": WEIGHT}), []
    for base in bases(X, [(g, b)]):
        found = fit_affine(y, base.tokens)
        if found is not None and base.flat is not None:
            weight = found.weight[0]
            weight = weight - (weight @ base.flat)[..., None] * base.flat  # what the norm hides
            places.append(index.without(base.flat).find(weight))
    assert [place.names for place in places if place] == [("w",)]


@pytest.mark.parametrize(
    "norm",
    [
        lambda t: F.normalize(t, dim=-1) * 3,
        lambda t: F.rms_norm(t, (D,), random(D, seed=7)),
        lambda t: F.layer_norm(t, (D,), random(D, seed=7), random(D, seed=8)),
    ],
)
def test_norms_of_heads_are_known_and_other_changes_are_not(norm):
    u = heads(F.linear(X, WEIGHT))
    assert normed(norm(u), u)
    assert not normed(u, u)
    assert not normed(torch.tanh(u), u)


def test_numbers_are_found_in_the_parameter_that_holds_them():
    index = ParameterIndex({"other": random(4, 4, seed=9), "w": WEIGHT, "b": BIAS})
    place = index.find(WEIGHT[D : 2 * D])
    assert place.names == ("w",)
    assert place.places == tuple(("w", D * E + i) for i in range(D * E))
    assert index.find(WEIGHT * D**-0.5, (1.0, D**-0.5)).factor == D**-0.5
    assert index.find(WEIGHT * 2) is None
    assert ParameterIndex({}).find(WEIGHT) is None


def test_a_product_of_two_weights_is_known_also_beside_a_third():
    down, up = random(2, E, seed=10), random(H * D, 2, seed=11)
    index = ParameterIndex({"base": WEIGHT, "down": down, "up": up})
    assert index.find_product(up @ down)
    assert index.find_product(WEIGHT + 2 * up @ down)
    assert not index.find_product(WEIGHT @ WEIGHT.t() @ WEIGHT)


def test_a_product_of_two_weights_is_found_with_its_factor():
    up, down = torch.randn(6, 2, dtype=torch.float64), torch.randn(2, 5, dtype=torch.float64)
    index = ParameterIndex({"up": up, "down": down})
    assert index.find_product(0.5 * up @ down) == pytest.approx(0.5)
    assert index.find_product(up @ down * (1 + 1e-12)) == 1.0
    assert index.find_product(torch.randn(6, 5, dtype=torch.float64)) == 0

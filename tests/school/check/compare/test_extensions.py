"""Right layers that are more than the formula, from the held-out corpus, as they are and with mistakes put in."""

from pathlib import Path

import pytest
import torch

from regard.mistakes.formula import Case
from regard.school.check.compare.experiment import Extension
from regard.school.check.compare.extensions import angles, is_alibi, is_two_steps, is_usual
from sampled import quick_every
from school.check.learner import checked

HELD_OUT = Path(__file__).parents[1] / "held_out"
NOTES = [
    ("rotary", "It rotates queries and keys by their positions (rotary positions)."),
    ("alibi", "It adds a number to each score by the positions of its tokens."),
    ("qk_norm", "It normalises queries and keys."),
    ("residual_inside", "It adds x to its output, a residual connection inside the layer."),
]


def source(layer, old="", new=""):
    text = (HELD_OUT / f"right_{layer}.py").read_text(encoding="utf-8")
    assert old in text
    return text.replace(old, new) if old else text


@pytest.mark.parametrize(("layer", "note"), NOTES)
def test_what_can_be_known_beside_the_formula_is_right_and_noted(layer, note, tmp_path):
    verdict = checked(source(layer), tmp_path)
    assert verdict.is_right
    assert note in verdict.notes


@pytest.mark.parametrize(
    ("layer", "old", "new", "problem"),
    quick_every(
        3,
        [
            ("qk_norm", "self.k_norm(k), v", "self.k_norm(k).cumsum(2), v", "it has a norm beside the formula"),
            ("prenorm_inside", "y.transpose(1, 2)", "y.cumsum(2).transpose(1, 2)", "it has a norm beside the formula"),
        ],
    ),
)
def test_what_cannot_be_known_is_not_checked(layer, old, new, problem, tmp_path):
    verdict = checked(source(layer, old, new), tmp_path)
    assert verdict.status == "unchecked"
    assert problem in verdict.problem


@pytest.mark.parametrize(
    ("layer", "old", "new", "name"),
    quick_every(
        3,
        [
            ("rotary", "is_causal=True)", "is_causal=True, scale=1.0)", "no scale"),
            ("rotary", "k = k * emb.cos() + rotate_half(k) * emb.sin()", "pass", "rotary positions on one side"),
            ("rotary", "y.transpose(1, 2).reshape", "y.reshape", "merge without transposing back"),
            ("alibi", "[None, :] > pos", "[None, :] >= pos", "mask off by one: the token itself hidden"),
            ("alibi", "/ math.sqrt(e // self.h)", "", "no scale"),
            ("qk_norm", "x.transpose(1, 2).reshape", "x.reshape", "merge without transposing back"),
            ("residual_inside", "/ (E // self.num_heads) ** 0.5", "", "no scale"),
        ],
    ),
)
def test_a_mistake_does_not_hide_behind_an_extension(layer, old, new, name, tmp_path):
    assert [one.name for one in checked(source(layer, old, new), tmp_path).mistakes] == [name]


@pytest.mark.parametrize(("layer", "old", "new"), [("rotary", "10000 **", "500 **"), ("relative_bias", "x", "x")])
def test_angles_and_biases_of_its_own_are_right_where_they_depend_on_the_distance_only(layer, old, new, tmp_path):
    assert checked(source(layer, old, new), tmp_path).is_right


@pytest.mark.slow
def test_what_only_looks_like_an_extension_is_wrong_without_a_name(tmp_path):
    (finding,) = checked(source("residual_inside", "return x +", "return 2 * x +"), tmp_path).mistakes
    assert finding.name == ""


def test_a_bias_that_depends_on_the_text_is_none_by_position(tmp_path):
    verdict = checked(source("relative_bias", "+ bias", "+ bias * q.mean()"), tmp_path)
    assert "Everything else in it is right" not in verdict.problem


def test_an_extension_is_known_unless_it_says_what_is_not():
    case = Case(torch.zeros(2, 5, 6), num_heads=2)
    assert Extension("It adds x.", case, torch.zeros(2, 5, 6)).unknown == ""


def rotated(x, turned):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * turned.cos() - b * turned.sin(), b * turned.cos() + a * turned.sin()), dim=-1)


def usual(T, pairs, base=10000.0):
    speeds = base ** (-torch.arange(pairs, dtype=torch.float64) / pairs)
    return torch.arange(T, dtype=torch.float64)[:, None] * speeds


def vectors(D):
    return torch.randn(2, 3, 5, D, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_the_angles_of_a_rotation_by_halves_and_by_neighbours_are_read():
    x = vectors(8)
    turned = usual(5, 4)
    found = angles(x, rotated(x, turned))
    torch.testing.assert_close(found.cos(), turned.cos())
    torch.testing.assert_close(found.sin(), turned.sin())
    order = [0, 4, 1, 5, 2, 6, 3, 7]
    torch.testing.assert_close(angles(x[..., order], rotated(x, turned)[..., order]).cos(), turned.cos())
    assert is_usual(found)
    assert not is_usual(angles(x, rotated(x, usual(5, 4, base=500.0))))


def test_only_half_of_a_vector_may_be_rotated():
    x = vectors(16)
    after = torch.cat((rotated(x[..., :8], usual(5, 4)), x[..., 8:]), dim=-1)
    assert is_usual(angles(x, after))


def test_other_changes_are_no_rotation():
    x = vectors(8)
    assert angles(x, x.relu()) is None
    assert angles(x, 2 * x) is None
    assert angles(x, rotated(x, torch.randn(2, 3, 5, 4, dtype=torch.float64))) is None  # another angle for each text
    assert angles(vectors(7), vectors(7)) is None


def test_the_slopes_of_alibi_are_known():
    place = torch.arange(5, dtype=torch.float64)
    slopes = torch.tensor([2**-2.0, 2**-4.0, 2**-6.0, 2**-8.0], dtype=torch.float64)
    visible = torch.ones(4, 5, 5, dtype=torch.bool).tril()
    bias = slopes[:, None, None] * (place - place[:, None])
    assert is_alibi(bias, visible)
    assert not is_alibi(2 * bias, visible)
    assert not is_two_steps(bias, visible)


def test_a_mask_that_is_added_has_two_numbers():
    visible = torch.ones(3, 5, 5, dtype=torch.bool)
    assert is_two_steps(torch.ones(3, 5, 5).tril(), visible)
    assert is_two_steps(-3 * torch.ones(3, 5, 5).triu(1), visible)
    assert not is_two_steps(torch.ones(3, 5, 5).tril(-1).cumsum(-1), visible)


def test_a_mask_that_is_added_is_two_steps_also_where_each_row_is_moved():
    added = torch.ones(3, 5, 5, dtype=torch.float64).triu(1)
    visible = torch.ones(3, 5, 5, dtype=torch.bool)
    assert is_two_steps(added + torch.arange(5.0)[:, None], visible)
    assert not is_two_steps(added * torch.arange(5.0), visible)

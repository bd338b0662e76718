import torch

from regard.school.check.compare.positions import angles, is_alibi, is_two_steps, is_usual


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

import pytest
import torch

from regard.school.check.compare.anatomy import Anatomy, dissect, is_relative
from regard.school.check.compare.constructor_arguments import PROBES
from regard.school.check.compare.experiment import experiment
from regard.school.check.compare.linear_maps import Affine
from regard.school.check.learner_code.subject import LocalSubject
from regard.school.check.request import Request
from school.check.compare.strange_layers import Alpha, Beta, Gamma


def tried(layer):
    return experiment(LocalSubject(layer), PROBES[0], 0, Request(), square=True)


@pytest.mark.parametrize(
    ("layer", "kept"),
    [(Alpha, ("a", "b", "c")), (Beta, ("mix.weight",) * 3), (Gamma, ("maps.0.weight",) * 3)],
)
def test_projections_are_found_where_names_say_nothing(layer, kept):
    found = dissect(tried(layer))
    assert isinstance(found, Anatomy), found
    assert [made.place.names[0] for made in (found.queries, found.keys, found.values)] == list(kept)
    assert found.out_place is not None


def test_the_weights_that_were_found_are_a_softmax_of_what_was_compared():
    found = dissect(tried(Alpha))
    scores = found.head.raw * found.scoring.factor[:, None, None] + found.scoring.bias
    torch.testing.assert_close(scores.softmax(-1), found.head.weights)
    torch.testing.assert_close(found.scoring.factor, torch.full((3,), 7**-0.5, dtype=torch.float64))


def test_rotary_positions_depend_on_the_distance_and_positions_on_one_side_do_not():
    found = dissect(tried(Beta))
    assert found.queries.map.has_positions
    assert not found.values.map.has_positions
    assert is_relative(found.queries.map, found.keys.map)
    still = Affine(found.keys.map.weight[:1], found.keys.map.bias[:1])
    assert not is_relative(found.queries.map, still)


def test_normalised_queries_and_keys_are_told_from_plain_ones():
    found = dissect(tried(Gamma))
    assert found.queries.is_normed
    assert found.keys.is_normed
    assert not found.values.is_normed


def test_a_sum_over_heads_and_widths_at_once_is_read():
    class Joined(Alpha):
        joins_all = True

    assert isinstance(dissect(tried(Joined)), Anatomy)


def test_values_of_other_tokens_are_said():
    class Rolled(Beta):
        def turn(self, t):
            return t.roll(1, -2)

    assert dissect(tried(Rolled)) == "its queries are not made of each token alone, by a matrix"

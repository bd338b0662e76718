"""Two atlases: what changed beyond noise is found and nothing else, heads that moved are found again."""

from dataclasses import replace

import numpy as np
import pytest

from heads.atlas.corpora import LAYERS, H, changed_model, small_atlas, small_model
from regard.heads.atlas.difference import MANY, _settled, difference
from regard.heads.atlas.examples import ExampleRow, Samples
from regard.heads.atlas.sums import Sums
from regard.heads.measure.registry import AVERAGED, BY_NAME


@pytest.fixture(scope="module")
def atlases():
    return [small_atlas(small_model()), small_atlas(changed_model())]


def reordered(atlas, order):
    """The same heads, layer 0 in another order."""
    layer = atlas.layers[0]
    sums = Sums(**{name: tensor[order] for name, tensor in vars(layer.sums).items()})
    samples = Samples(layer.heads)
    samples.groups = {
        (new, group): rows
        for new, old in enumerate(order)
        for (head, group), rows in layer.samples.groups.items()
        if head == old
    }
    return replace(atlas, layers=[replace(layer, sums=sums, samples=samples), *atlas.layers[1:]])


def test_the_head_that_changed_is_first_and_heads_before_it_did_not(atlases):
    found = difference(*atlases)
    assert len(found) == H * LAYERS
    assert [(one.before.layer, one.before.head, one.moved) for one in found.changed()] == [(1, 2, False)]
    first = found[0]
    name = first.statistic
    before, after = first.values
    assert first.values == pytest.approx([one.across_texts(name)[0] for one in (first.before, first.after)])
    errors = [one.across_texts(name)[1] / (texts(one, name) - 1) ** 0.5 for one in (first.before, first.after)]
    assert first.noise == pytest.approx((errors[0] ** 2 + errors[1] ** 2) ** 0.5)
    keys = atlases[0].layers[0].sums.reach
    assert first.beyond == pytest.approx((abs(after - before) - MANY * first.noise) / BY_NAME[name].most(keys))


def texts(head, name):
    return float(head.atlas.layers[head.layer].sums.texts[head.head, AVERAGED.index(name), 0])


def test_the_same_atlas_has_no_changes_and_other_texts_change_nothing_beyond_noise(atlases):
    assert difference(atlases[0], atlases[0]).changed() == []
    other = small_atlas(small_model(), seed=13)
    assert difference(atlases[0], other).changed() == []


def test_heads_that_moved_are_found_again(atlases):
    moved = difference(atlases[0], reordered(atlases[0], [2, 0, 1]))
    pairs = {(one.before.layer, one.before.head): (one.after.layer, one.after.head) for one in moved}
    assert pairs == {(0, 0): (0, 1), (0, 1): (0, 2), (0, 2): (0, 0), (1, 0): (1, 0), (1, 1): (1, 1), (1, 2): (1, 2)}
    assert [one.beyond for one in moved] == [0.0] * 6
    assert all(one.moved for one in moved.changed())


@pytest.mark.parametrize(("back", "pairs"), [(0.01, {0: 1, 1: 0}), (0.15, {0: 0, 1: 1})])
def test_heads_change_places_only_where_both_gain(back, pairs):
    assert _settled({0: 1, 1: 0}, {0: 0, 1: 1}, np.array([[0.1, 0.01], [back, 0.1]])) == pairs


def test_models_with_other_numbers_of_heads_leave_some_alone(atlases):
    smaller = replace(atlases[0], layers=atlases[0].layers[:1])
    assert difference(atlases[0], smaller).alone == (3, 0)
    assert difference(smaller, atlases[0]).alone == (0, 3)


def test_disagreements_are_rows_of_both_heads_and_the_most_different_come_first(atlases):
    first = difference(*atlases)[0]
    rows = first.disagreements()
    assert rows
    assert [one.share for one in rows] == sorted((one.share for one in rows), reverse=True)
    for before, after, share in rows:
        assert (before.text, before.token) == (after.text, after.token)
        assert 0 <= share <= 1
    keys = {5: 0.9, 3: 0.1}, {5: 0.4, 2: 0.6}
    samples = [Samples(1), Samples(1)]
    for one, weights in zip(samples, keys, strict=True):
        one.put(0, 20, 7, ExampleRow(1, 6, max(weights.values()), tuple(weights), tuple(weights.values()), {}))
    heads = [
        replace(atlas, layers=[replace(atlas.layers[0], samples=one), *atlas.layers[1:]])[0, 0]
        for atlas, one in zip(atlases, samples, strict=True)
    ]
    [only] = replace(first, before=heads[0], after=heads[1]).disagreements()
    assert only.share == pytest.approx(0.6)


def test_few_texts_have_no_noise_to_compare_with(atlases):
    with pytest.raises(
        ValueError, match="and GPT has 7 texts; read at least 8, by a longer corpus or a smaller --length"
    ):
        difference(atlases[0], replace(atlases[0], texts=7))

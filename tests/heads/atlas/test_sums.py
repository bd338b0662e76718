"""What an atlas adds up equals what is computed from weights that are written out, and adds exactly."""

from itertools import pairwise

import pytest
import torch

import regard
from heads.atlas.corpora import LAYERS, H, Letters, corpus, dense_values, same_sums, small_model
from regard.heads.atlas.cells import CLASSES, POSITIONS
from regard.heads.atlas.sketch import bins_of
from regard.heads.atlas.sums import COUNT, SQUARES, SUM
from regard.heads.measure.registry import AVERAGED
from regard.heads.report.roles import ENOUGH

TEXTS = corpus(20)


@pytest.fixture(scope="module")
def model():
    return small_model()


@pytest.fixture(scope="module")
def atlas(model):
    return regard.atlas(model, TEXTS, tokenizer=Letters())


@pytest.fixture(scope="module")
def dense(model):
    """By layer, the values of all texts one after another, (H, K, tokens)."""
    each = [dense_values(model, ids) for ids in TEXTS]
    return [torch.cat([values[layer] for values in each], -1) for layer in range(LAYERS)]


def moments(values):
    known = ~values.isnan()
    plain = values.nan_to_num(0.0)
    return torch.stack([known.double().sum(-1), plain.sum(-1), (plain * plain).sum(-1)], -1)


def test_every_sum_is_that_of_weights_that_are_written_out(atlas, dense):
    for layer, values in zip(atlas.layers, dense, strict=True):
        torch.testing.assert_close(layer.sums.moments(), moments(values), rtol=1e-10, atol=1e-10)


@pytest.mark.slow
def test_every_sum_of_200_texts_is_that_of_weights_that_are_written_out(model):
    texts = corpus(200, seed=13)
    atlas = regard.atlas(model, texts)
    each = [dense_values(model, ids) for ids in texts]
    for number, layer in enumerate(atlas.layers):
        values = torch.cat([one[number] for one in each], -1)
        torch.testing.assert_close(layer.sums.moments(), moments(values), rtol=1e-10, atol=1e-10)


def test_sums_by_position_are_those_of_the_rows_there(atlas, dense):
    at = torch.cat([torch.arange(ids.shape[1]) for ids in TEXTS])
    edges = [0, 1, 2, 4, 8, 16, 32, 64]
    for layer, values in zip(atlas.layers, dense, strict=True):
        for place, (low, high) in enumerate(pairwise(edges)):
            own = layer.sums.rows[:, :, len(CLASSES) + place]
            torch.testing.assert_close(own, moments(values[:, :, (at >= low) & (at < high)]), rtol=1e-10, atol=1e-10)
        assert not layer.sums.rows[:, :, len(CLASSES) + 7 :].any()
    assert POSITIONS[:4] == ("0", "1", "2–3", "4–7")


def test_sums_by_class_are_those_of_the_tokens_of_that_class(atlas, dense):
    ids = torch.cat([one[0] for one in TEXTS])
    for name, characters in (("special", "§"), ("punctuation", ".,"), ("digits", "12"), ("space", " \n")):
        chosen = torch.tensor([Letters.characters[i] in characters for i in ids.tolist()])
        for layer, values in zip(atlas.layers, dense, strict=True):
            own = layer.sums.rows[:, :, CLASSES.index(name)]
            torch.testing.assert_close(own, moments(values[:, :, chosen]), rtol=1e-10, atol=1e-10)
    total = [layer.sums.rows[:, :, : len(CLASSES)].sum(2) for layer in atlas.layers]
    torch.testing.assert_close(total, [layer.sums.moments() for layer in atlas.layers])


def test_counts_in_bins_are_those_of_all_values(atlas, dense):
    for layer, values in zip(atlas.layers, dense, strict=True):
        for k, name in enumerate(AVERAGED):
            known = ~values[:, k].isnan()
            expected = torch.stack(
                [bins_of(name, row[own]).bincount(minlength=256) for row, own in zip(values[:, k], known, strict=True)]
            )
            moved = (layer.sums.bins[:, k] - expected).abs().sum()  # a value at an edge may be in the next bin
            assert layer.sums.bins[:, k].sum(-1).tolist() == known.sum(-1).tolist()
            assert moved <= 2


def test_means_of_texts_are_those_of_texts_with_enough_rows(model, atlas):
    for number, layer in enumerate(atlas.layers):
        means = []
        for ids in TEXTS:
            count, total, _ = moments(dense_values(model, ids)[number]).unbind(-1)
            means.append(torch.where(count >= ENOUGH, total / count, torch.nan))
        torch.testing.assert_close(layer.sums.texts, moments(torch.stack(means, -1)), rtol=1e-10, atol=1e-10)


def test_a_role_is_that_of_a_report_of_the_same_texts(model, atlas):
    with torch.no_grad(), regard.watch(model) as seen:
        for ids in TEXTS:
            model(ids)
    for key, one in atlas.portraits().items():
        expected = seen.portraits()[key]
        assert one.role.name == expected.role.name
        assert one.role.score == pytest.approx(expected.role.score, rel=1e-9)
        assert dict(one.means) == pytest.approx(dict(expected.means), rel=1e-9, nan_ok=True)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_parts_of_a_corpus_add_to_the_whole_in_any_order(model, atlas, order):
    parts = [regard.atlas(model, TEXTS[first::3], tokenizer=Letters()) for first in order]
    same_sums(parts[0] + parts[1] + parts[2], atlas)
    same_sums(parts[0] + (parts[1] + parts[2]), atlas)


def test_texts_of_one_batch_add_as_texts_one_by_one(model):
    texts = torch.cat([torch.randint(0, 31, (5, 19), generator=torch.Generator().manual_seed(3))])
    same_sums(regard.atlas(model, [texts]), regard.atlas(model, [row[None] for row in texts]))


def test_nothing_of_a_batch_that_is_refused_is_added(model):
    from regard.heads.atlas.collect import AtlasBuilder

    builder = AtlasBuilder(model)
    builder.add(TEXTS[0])
    before = builder.atlas()
    weight = model.blocks[1].attention.W_key.weight
    old = weight.detach().clone()
    with torch.no_grad():
        weight[0, 0] = torch.nan
    with pytest.raises(ValueError, match=r"are NaN.* check the model's weights"):
        builder.add(TEXTS[1])
    with torch.no_grad():
        weight.copy_(old)
    same_sums(builder.atlas(), before)
    builder.add(TEXTS[1])
    same_sums(builder.atlas(), regard.atlas(model, TEXTS[:2]))


def test_rows_are_counted_once(atlas):
    count = sum(ids.shape[1] for ids in TEXTS)
    for layer in atlas.layers:
        entropy = layer.sums.moments()[:, AVERAGED.index("entropy")]
        assert entropy[:, COUNT].tolist() == [count] * H
        assert bool((entropy[:, SQUARES] * count >= entropy[:, SUM] ** 2 - 1e-9).all())
    assert (atlas.texts, atlas.tokens) == (len(TEXTS), count)

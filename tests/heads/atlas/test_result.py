"""An atlas by number: heads, means, jobs, comparisons, and what it refuses."""

import math
from dataclasses import replace

import pytest
import torch

import regard
from heads.atlas.corpora import LAYERS, H, Letters, corpus, dense_values, small_model
from regard.heads.measure.registry import AVERAGED

TEXTS = corpus(6)


@pytest.fixture(scope="module")
def model():
    return small_model()


@pytest.fixture(scope="module")
def atlas(model):
    return regard.atlas(model, TEXTS, tokenizer=Letters(), probe=False)


def test_means_spreads_and_quantiles_are_those_of_the_rows(model, atlas):
    values = torch.cat([dense_values(model, ids)[1] for ids in TEXTS], -1)[2]
    for k, name in enumerate(AVERAGED):
        rows = values[k][~values[k].isnan()]
        assert atlas[1, 2].count(name) == len(rows)
        assert atlas[1, 2].mean(name) == pytest.approx(float(rows.mean()))
        assert atlas[1, 2].spread(name) == pytest.approx(float(rows.std(correction=0)), abs=1e-7)
        middle = float(rows.sort().values[math.ceil(len(rows) / 2) - 1])
        assert atlas[1, 2].quantile(name, 0.5) == pytest.approx(middle, rel=0.042, abs=1 / 512)


def test_the_spread_over_texts_is_that_of_their_means(model, atlas):
    each = [dense_values(model, ids)[0][1, AVERAGED.index("self")] for ids in TEXTS if ids.shape[1] >= 4]
    means = torch.stack([one.mean() for one in each])
    assert atlas[0, 1].across_texts("self") == pytest.approx((float(means.mean()), float(means.std(correction=0))))


def test_shares_of_jobs_sum_to_one(atlas):
    for layer in atlas:
        for head in layer:
            assert sum(head.jobs.values()) == pytest.approx(1)
            assert sum(head.text_jobs.values()) == pytest.approx(1)
            assert head.stability == max(head.text_jobs.values())
            assert list(head.jobs.values()) == sorted(head.jobs.values(), reverse=True)


def test_heads_are_chosen_by_number_role_layer_and_statistic(atlas):
    assert [(one.layer, one.head) for one in atlas[1]] == [(1, head) for head in range(H)]
    assert (atlas[-1, -1].layer, atlas[-1, -1].head) == (LAYERS - 1, H - 1)
    ordered = atlas.heads(by="entropy")
    assert [one.mean("entropy") for one in ordered] == sorted((one.mean("entropy") for one in ordered), reverse=True)
    assert {one.layer for one in atlas.heads(layer=1)} == {1}
    for one in atlas.heads(role=atlas[0, 0].role.name):
        assert one.role.name == atlas[0, 0].role.name


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda a: a[2], "layer 2 does not exist: this atlas has 2 layers, 0 to 1"),
        (lambda a: a[0, 3], r"head 3 does not exist: blocks\.0\.attention has 3 heads, 0 to 2"),
        (lambda a: a[0, 0].mean("received"), "an atlas has no 'received'; it has entropy, distance, "),
        (lambda a: a.heads(role="verb"), "no role is called 'verb'; roles are induction, "),
        (lambda a: a.heads(by="verb"), "heads cannot be sorted by 'verb'; by is one of entropy, "),
        (lambda a: a[0, 0].probe, r"not probed; measure with atlas\(model, texts, probe=True\)"),
        (lambda a: a[0, 0].quantile("sink", 2), "a share between 0 and 1"),
    ],
)
def test_what_is_not_there_is_said(atlas, ask, message):
    with pytest.raises(ValueError, match=message):
        ask(atlas)


def test_atlases_of_other_weights_or_layers_do_not_add(model, atlas):
    with pytest.raises(
        ValueError, match=r"these have different weights; compare them instead: atlas\.compare\(other\)"
    ):
        _ = atlas + regard.atlas(small_model(seed=7), TEXTS[:1])
    layer = regard.MultiHeadAttention(d_in=12, d_out=12, context_length=16, dropout=0.0, num_heads=3)
    with pytest.raises(ValueError, match="these have different layers"):
        _ = atlas + regard.atlas(layer, [torch.randn(1, 7, 12)])
    with pytest.raises(TypeError, match="unsupported operand"):
        _ = atlas + 3


def test_two_models_are_compared_head_by_head(atlas):
    other = regard.atlas(small_model(seed=7), TEXTS)
    changes = atlas.compare(other)
    assert len(changes) == LAYERS * H
    one = changes[0]
    means = [each[one.layer, one.head].mean("entropy") for each in (atlas, other)]
    assert one.differences["entropy"] == pytest.approx(means[1] - means[0])
    assert [change.size for change in atlas.compare(atlas)] == [0.0] * (LAYERS * H)


def test_a_head_prints_its_role_its_jobs_and_its_means(atlas):
    text = repr(atlas[1, 0])
    assert text.startswith("1.0  blocks.1.attention[0]\n  ")
    assert "\n  rows: " in text
    assert "\n  texts: " in text
    assert f"entropy {atlas[1, 0].mean('entropy'):.2f}" in text


def test_heads_that_the_probe_finds_stand_with_their_role_and_first(atlas):
    probed = torch.zeros(LAYERS, H, 3, dtype=torch.float64)
    probed[1, 2] = torch.tensor([0.91, 0.95, 0.0])  # induction, before the previous token
    probed[0, 1] = torch.tensor([0.95, 0.0, 0.0])
    probed[1, 0] = torch.tensor([0.39, math.nan, 0.0])
    layers = [replace(layer, probed=own) for layer, own in zip(atlas.layers, probed, strict=True)]
    names = [(one.layer, one.head) for one in replace(atlas, layers=layers).heads()]
    before = [(one.layer, one.head) for one in atlas.heads()]
    assert names == [(0, 1), (1, 2), *(one for one in before if one not in ((0, 1), (1, 2)))]

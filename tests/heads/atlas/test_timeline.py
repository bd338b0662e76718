"""A run in time: moments by step, and the step from which a head stays what it became."""

import math
from dataclasses import replace

import pytest
import torch

from heads.atlas.corpora import small_atlas, small_model
from regard.heads.atlas.timeline import Moment, Timeline, read_timeline


@pytest.fixture(scope="module")
def atlas():
    return small_atlas(small_model())


def with_probe(atlas, best):
    """Head 1.2 has this score of induction, and no other head any."""
    scores = [torch.zeros(layer.heads, 3, dtype=torch.float64) for layer in atlas.layers]
    scores[1][2, 0] = best
    layers = [replace(layer, probed=one) for layer, one in zip(atlas.layers, scores, strict=True)]
    return replace(atlas, layers=layers)


def moments(atlas, scores):
    return [Moment(10 * i, 1.0, with_probe(atlas, score)) for i, score in enumerate(scores)]


@pytest.mark.parametrize(
    ("scores", "step"),
    [([0.0, 0.5, 0.1, 0.4, 0.9], 30), ([0.5, 0.5], 0), ([0.5, 0.3], None), ([0.1, 0.39], None)],
)
def test_a_head_appears_at_the_step_from_which_it_stays(atlas, scores, step):
    run = Timeline(moments(atlas, scores)[::-1])
    assert [one.step for one in run] == [10 * i for i in range(len(scores))]
    found = run.appears("induction")
    assert (None if found is None else found.step) == step
    best = run[0].best("induction")
    assert best.score == scores[0]
    if scores[0]:
        assert (best.head.layer, best.head.head) == (1, 2)


def test_files_of_a_run_are_read_with_their_losses_and_others_are_refused(atlas, tmp_path):
    for step in (5, 10):
        replace(with_probe(atlas, 0.5), extra={"step": step}).save(tmp_path / f"{step}.safetensors")
    run = read_timeline([tmp_path / "10.safetensors", tmp_path / "5.safetensors"], {5: 3.5})
    assert [one.step for one in run] == [5, 10]
    assert run[0].loss == 3.5
    assert math.isnan(run[1].loss)
    atlas.save(tmp_path / "other.safetensors")
    with pytest.raises(
        ValueError, match=r"other\.safetensors is no atlas of a training run; regard train --atlas-every N"
    ):
        read_timeline([tmp_path / "other.safetensors"], {})
    replace(atlas, extra={"step": 1}).save(tmp_path / "bare.safetensors")
    with pytest.raises(ValueError, match=r"bare\.safetensors has no scores of the probe"):
        read_timeline([tmp_path / "bare.safetensors"], {})

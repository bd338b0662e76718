"""A run in time: moments by step, and the step from which a head stays what it became."""

import math
from dataclasses import replace

import pytest
import torch

from heads.atlas.corpora import small_atlas, small_model
from regard.heads.atlas.timeline import Birth, Moment, Timeline, read_timeline


@pytest.fixture(scope="module")
def atlas():
    return small_atlas(small_model())


def with_probe(atlas, best, noise=None):
    """Head 1.2 has this score of induction, with this standard error, and no other head any."""
    scores = [torch.zeros(layer.heads, 3, dtype=torch.float64) for layer in atlas.layers]
    scores[1][2, 0] = best
    errors = [None if noise is None else torch.full_like(one, noise) for one in scores]
    pairs = zip(atlas.layers, scores, errors, strict=True)
    layers = [replace(layer, probed=one, probe_noise=error) for layer, one, error in pairs]
    return replace(atlas, layers=layers)


def moments(atlas, scores, noise=None):
    return [Moment(10 * i, 1.0, with_probe(atlas, score, noise)) for i, score in enumerate(scores)]


@pytest.mark.parametrize(
    ("scores", "noise", "births"),
    [
        ([0.0, 0.5, 0.1, 0.41, 0.9], None, [Birth(1, 2, 30, False)]),
        ([0.0, 0.5, 0.1, 0.41, 0.9], 0.004, [Birth(1, 2, 30, False)]),
        ([0.0, 0.5, 0.1, 0.41, 0.9], 0.006, [Birth(1, 2, 40, False)]),
        ([0.5, 0.5], 0.01, [Birth(1, 2, 0, True)]),
        ([0.5], math.nan, [Birth(1, 2, 0, True)]),
        ([0.5, 0.3], None, []),
        ([0.1, 0.4], None, []),
    ],
)
def test_a_head_is_born_at_the_step_from_which_it_stays_beyond_its_noise(atlas, scores, noise, births):
    run = Timeline(moments(atlas, scores, noise)[::-1])
    assert [one.step for one in run] == [10 * i for i in range(len(scores))]
    assert run.births("induction") == births
    assert run.births("previous") == []
    best = run[0].best("induction")
    assert best.score == scores[0]
    if scores[0]:
        assert (best.head.layer, best.head.head) == (1, 2)


def test_files_of_a_run_are_read_with_their_losses_and_others_are_refused(atlas, tmp_path):
    for step in (5, 10):
        replace(with_probe(atlas, 0.5), extra={"step": step}).save(tmp_path / f"{step}.safetensors")
    log = [{"step": 4, "loss": 4.0}, {"step": 5, "loss": 3.5, "val_loss": 3.75, "time": 2.5}, {"step": 6}]
    run = read_timeline([tmp_path / "10.safetensors", tmp_path / "5.safetensors"], log)
    assert run.losses[0] == pytest.approx((4, 4.0, math.nan, math.nan), nan_ok=True)
    assert run.losses[1:] == [(5, 3.5, 3.75, 2.5)]
    assert [one.step for one in run] == [5, 10]
    assert run[0].loss == 3.5
    assert math.isnan(run[1].loss)
    atlas.save(tmp_path / "other.safetensors")
    with pytest.raises(
        ValueError, match=r"other\.safetensors is no atlas of a training run; regard train --atlas-every N"
    ):
        read_timeline([tmp_path / "other.safetensors"], [])
    replace(atlas, extra={"step": 1}).save(tmp_path / "bare.safetensors")
    with pytest.raises(ValueError, match=r"bare\.safetensors has no scores of the probe"):
        read_timeline([tmp_path / "bare.safetensors"], [])


def test_a_damaged_file_in_a_run_is_named_and_so_are_steps_that_do_not_fit(atlas, tmp_path):
    own = with_probe(atlas, 0.5)
    files = [tmp_path / f"{step}.safetensors" for step in (1, 2, 3)]
    for step, path in enumerate(files, 1):
        replace(own, extra={"step": step}).save(path)
    files[1].write_bytes(files[1].read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"2\.safetensors.*; or remove that file, and the other steps are shown"):
        read_timeline(files, [])
    replace(own, extra={"step": 3}).save(files[1])
    with pytest.raises(ValueError, match=r"two atlases are of step 3; keep one of them"):
        read_timeline(files, [])
    replace(own, layers=own.layers[:1], extra={"step": 2}).save(files[1])
    with pytest.raises(ValueError, match=r"the atlases of steps 1 and 2 are of models of other sizes"):
        read_timeline(files, [])

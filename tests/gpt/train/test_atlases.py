"""Atlases of a run: written at their steps, of the same texts, and training learns the same with and without."""

import pytest
import torch

import regard
from gpt.train.small_runs import COUNTING, OPTIONS, small
from regard.gpt.train.atlases import atlas_files
from regard.gpt.train.fit import fit
from regard.gpt.train.state import read_run


def test_a_run_keeps_an_atlas_of_its_steps_and_learns_the_same(tmp_path):
    sizes = {"context_length": 16}
    watched, plain = small(**sizes), small(**sizes)
    result = fit(watched, COUNTING, out=tmp_path / "a", atlas_every=5, **OPTIONS)
    fit(plain, COUNTING, out=tmp_path / "b", **OPTIONS)
    assert all(torch.equal(one, other) for one, other in zip(watched.parameters(), plain.parameters(), strict=True))
    files = atlas_files(tmp_path / "a")
    assert [path.name for path in files] == [f"step-{step:07}.safetensors" for step in (5, 10, 12)]
    last = regard.load_atlas(files[-1])
    assert (last.extra, last.texts) == ({"step": 12}, regard.load_atlas(files[0]).texts)
    assert last.layers[0].probed is not None
    assert last.layers[0].probe_noise is not None
    run = result.timeline()
    assert [one.step for one in run] == [5, 10, 12]
    assert [one.step for one in run.losses] == list(range(1, 13))
    assert (last.texts, last.tokens) == (3, 48)  # of a tenth of 600 tokens
    fit(small(**sizes), COUNTING, out=tmp_path / "a", resume=False, **OPTIONS)
    assert atlas_files(tmp_path / "a") == []
    with pytest.raises(ValueError, match=r"a has no atlases yet; regard train --atlas-every N writes them"):
        read_run(tmp_path / "a")


def test_an_atlas_needs_validation_data(tmp_path):
    with pytest.raises(ValueError, match=r"atlas_every \(5\) needs validation data; leave it out"):
        fit(small(), COUNTING, out=tmp_path, atlas_every=5, **OPTIONS | {"val_fraction": 0.0})

"""`regard atlas runs/first`: the heads of a run over its steps."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from heads.atlas.corpora import small_atlas, small_model
from heads.atlas.test_timeline import with_probe
from regard import cli
from regard.commands.shared.atlas_runs import is_run, show_run


def test_a_run_is_shown_by_its_atlases_and_its_log(tmp_path, capsys):
    assert not is_run(str(tmp_path))
    (tmp_path / "log.jsonl").write_text(json.dumps({"step": 5, "loss": 3.5}) + "\n")
    assert is_run(str(tmp_path))
    with pytest.raises(ValueError, match="has no atlases yet; regard train --atlas-every N writes them"):
        show_run(str(tmp_path), False)
    atlas = replace(with_probe(small_atlas(small_model()), 0.5, 0.01), extra={"step": 5})
    atlas.save(tmp_path / "atlases" / "step-0000005.safetensors")
    out = run_command(tmp_path).stdout
    assert out.startswith("\n  step  loss   induction  probe")
    assert "\n  5     3.500  1.2         0.50" in out
    assert "induction: learned it: 1.2 from step 5" in out
    assert "previous: no head learned it in this run (5 steps)" in out
    assert "-o training.html" in out
    refused = run_command(tmp_path, "--probe")
    assert "--probe cannot be used here" in str(refused.exception)
    (tmp_path / "config.json").write_text("{}")
    assert not is_run(str(tmp_path))


def test_the_page_of_a_run_is_written_and_other_files_are_refused(tmp_path):
    (tmp_path / "log.jsonl").write_text(json.dumps({"step": 5, "loss": 3.5}) + "\n")
    atlas = replace(with_probe(small_atlas(small_model()), 0.5), extra={"step": 5})
    atlas.save(tmp_path / "atlases" / "step-0000005.safetensors")
    page = tmp_path / "training.html"
    assert f"Wrote {page}" in run_command(tmp_path, "-o", str(page)).stdout
    assert tmp_path.name in page.read_text(encoding="utf-8")
    refused = run_command(tmp_path, "-o", str(tmp_path / "run.safetensors"))
    assert "of a run a page is written; try -o run.html" in str(refused.exception)


def run_command(folder, *arguments):
    return CliRunner().invoke(cli.app, ["atlas", str(folder), *arguments])

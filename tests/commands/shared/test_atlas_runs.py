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
    (tmp_path / "atlases").mkdir()
    (tmp_path / "log.jsonl").write_text(json.dumps({"step": 5, "loss": 3.5}) + "\n")
    assert is_run(str(tmp_path))
    with pytest.raises(ValueError, match="has no atlases yet; regard train --atlas-every N writes them"):
        show_run(str(tmp_path), False)
    atlas = replace(with_probe(small_atlas(small_model()), 0.5), extra={"step": 5})
    atlas.save(tmp_path / "atlases" / "step-0000005.safetensors")
    out = CliRunner().invoke(cli.app, ["atlas", str(tmp_path)]).stdout
    assert out.startswith("\n  step  loss   induction  probe")
    assert "\n  5     3.500  1.2         0.50" in out
    assert "induction: from step 5 on some head passes 0.4" in out
    refused = CliRunner().invoke(cli.app, ["atlas", str(tmp_path), "--probe"])
    assert "--probe cannot be used here" in str(refused.exception)

"""The table of a run in time."""

import math

from heads.atlas.corpora import small_atlas, small_model
from heads.atlas.test_timeline import with_probe
from regard.heads.atlas.timeline import Moment, Timeline
from regard.support.drawing import as_html, as_text


def test_each_step_has_its_loss_and_the_heads_that_come_closest():
    atlas = small_atlas(small_model())
    run = Timeline([Moment(step, loss, with_probe(atlas, score)) for step, loss, score in
                    ((100, 2.5, 0.1), (200, math.nan, 0.8), (1000, 1.25, 0.9))])  # fmt: skip
    text = as_text(run, 100)
    lines = text.splitlines()
    assert lines[0].split() == ["step", "loss", "induction", "probe", "corpus", "previous", "probe", "corpus"]
    mean, error = atlas[1, 2].over_texts("induction")
    assert lines[1].split()[:7] == ["100", "2.500", "1.2", "0.10", f"{mean:.2f}", "±", f"{error:.2f}"]
    assert lines[2].split()[:4] == ["200", "·", "1.2", "0.80"]
    assert "  induction: learned it: 1.2 from step 200\n" in text
    assert "  previous: no head learned it in this run (1,000 steps)\n" in text
    assert "…" not in as_text(run, 80)  # nothing is cut
    assert "  … 1 steps are left out: --all" in as_text(run, 100, few=2, more="--all")
    assert "<td>1.2</td>" in as_html(run)

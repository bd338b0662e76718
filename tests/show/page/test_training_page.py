"""The page of a training run: its numbers are those of the kept atlases, and nothing breaks it."""

import base64
import gzip
import json
import math
import re
from dataclasses import replace

import pytest
import torch

from heads.atlas.corpora import LAYERS, H, small_atlas, small_model
from regard.heads.atlas.timeline import Loss, Moment, Timeline
from regard.heads.measure.registry import AVERAGED
from regard.heads.probe import SCORES
from regard.heads.report.roles import ROLES
from regard.show.page.training_page import describe_run, training_page

STEPS, BIRTH = (10, 30, 50), 30


def made_run(steps=STEPS, losses=None):
    """Head 1.2 learns induction at step 30, by a made-up probe; every step has an atlas of another model."""
    moments = []
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        atlas, layers = small_atlas(small_model(step)), []
        for number, layer in enumerate(atlas.layers):
            scores = 0.1 * torch.rand(H, 3, generator=generator, dtype=torch.float64)
            scores[2, 0] = 0.7 if number == 1 and step >= BIRTH else scores[2, 0]
            layers.append(replace(layer, probed=scores, probe_noise=0.01 * torch.rand(H, 3, generator=generator)))
        moments.append(Moment(step, 5 - step / 25, replace(atlas, layers=layers, extra={"step": step})))
    lines = [Loss(step, 5 - step / 25, 5.0 if step % 10 == 0 else math.nan, step / 2) for step in range(1, 51)]
    return Timeline(moments, lines if losses is None else losses)


@pytest.fixture(scope="module")
def run():
    return made_run()


def parts(page):
    [document] = re.findall(r'<script type="application/json" id="regard-document">(.*?)</script>', page)
    [block] = re.findall(r'<script type="text/plain" id="block-heads">([^<]*)</script>', page)
    return json.loads(document), json.loads(gzip.decompress(base64.b64decode(block)))


def as_tensor(values):
    return torch.tensor([[math.nan if one is None else one for one in row] for row in values], dtype=torch.float64)


def test_every_mean_and_its_noise_is_that_of_the_kept_atlas(run):
    _, curves = parts(training_page(run))
    assert len(curves) == LAYERS * H
    exactly = {"rtol": 5e-4, "atol": 1e-12, "equal_nan": True}  # four digits
    heads = list(zip(*(one.heads() for one in run), strict=True))
    for name in SCORES:
        own = (
            [[one.probe[name] for one in row] for row in heads],
            [[one.probe_noise[name] for one in row] for row in heads],
        )
        for kind, values in zip(("means", "noise"), own, strict=True):
            found = as_tensor([one[kind][f"probe.{name}"] for one in curves])
            torch.testing.assert_close(found, torch.tensor(values, dtype=torch.float64), **exactly)
    for name in AVERAGED:
        pairs = torch.tensor([[one.over_texts(name) for one in row] for row in heads], dtype=torch.float64)
        if pairs.isnan().all():
            assert all(name not in one["means"] for one in curves)
            continue
        for i, kind in enumerate(("means", "noise")):
            torch.testing.assert_close(as_tensor([one[kind][name] for one in curves]), pairs[..., i], **exactly)
    roles = [[list(ROLES)[number] for number in one["roles"]] for one in curves]
    assert roles == [[one.role.name for one in row] for row in heads]


def test_the_document_has_the_losses_and_the_moment_of_induction(run):
    page = training_page(run, "</script><b>")
    document, _ = parts(page)
    assert page.count("<script") == page.count("</script>") == 4  # document, heads, script and start
    assert document == json.loads(json.dumps(describe_run(run, "</script><b>")))
    assert (document["steps"], document["model"]) == (list(STEPS), "</script><b>")
    assert document["curve"] == [[one.step, pytest.approx(one.training, abs=1e-9)] for one in run.losses]
    assert document["validation"] == [[step, 5.0] for step in (10, 20, 30, 40, 50)]
    assert document["seconds"] == [step / 2 for step in STEPS]
    assert document["births"] == {
        "induction": [{"layer": 1, "head": 2, "step": BIRTH, "first": False}],
        "previous": [],
    }
    assert [one["name"] for one in document["statistics"]][:3] == [f"probe.{one}" for one in SCORES]


def test_a_loss_that_is_not_finite_is_a_gap_and_a_long_log_is_averaged():
    lines = [Loss(step, math.nan if step in (2, 3, 7) else float(step)) for step in range(1, 2003)]
    document, _ = parts(training_page(made_run((10, 20), lines)))
    curve = document["curve"]
    assert len(curve) <= 1000
    assert curve[:3] == [[3, 1.0], [6, 5.0], [9, 8.5]]
    assert document["validation"] == []
    assert document["seconds"] == [None, None]
    assert parts(training_page(made_run((10,), [Loss(10, math.inf)])))[0]["curve"] == [[10, None]]


def test_a_few_texts_have_means_and_no_noise():
    model = small_model()
    atlas = replace(small_atlas(model, texts=5), extra={"step": 3})
    layers = [replace(one, probed=torch.zeros(H, 3, dtype=torch.float64)) for one in atlas.layers]
    document, curves = parts(training_page(Timeline([Moment(3, 2.0, replace(atlas, layers=layers))])))
    assert document["births"] == {"induction": [], "previous": []}
    for one, head in zip(curves, Moment(3, 2.0, atlas).heads(), strict=True):
        assert one["noise"]["entropy"] == [None]
        assert one["means"]["entropy"] == [pytest.approx(head.across_texts("entropy")[0], rel=5e-4)]


def test_a_run_without_moments_has_no_page():
    with pytest.raises(
        ValueError, match=r"the run has no atlases yet, so there is nothing to play; regard train --atlas"
    ):
        training_page(Timeline([]))

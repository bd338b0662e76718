import json

import torch

from regard.school.check.verdict import Example, Finding, Verdict

MISTAKE = Finding("no scale", "The scores are not divided.", fix="scores / D**0.5", line=3)
WARNING = Finding("−1e9 overflows in fp16", "It fails.", is_warning=True)


def test_a_warning_does_not_make_a_layer_wrong():
    assert Verdict("A", "attention", [WARNING]).status == "right"
    assert Verdict("A", "attention", [WARNING, MISTAKE]).status == "wrong"
    assert Verdict("A", "attention", problem="why").status == "unchecked"
    assert Verdict("A", "attention", [WARNING, MISTAKE]).mistakes == [MISTAKE]


def test_json_tells_what_was_tried_and_what_could_not_be():
    written = Verdict("A", "attention", checked=["values"], not_checked=["padding: it fails"]).as_json()
    assert written["checked"] == ["values"]
    assert written["not_checked"] == ["padding: it fails"]


def test_json_has_the_fix_only_with_the_solution():
    verdict = Verdict("A", "attention", [MISTAKE])
    assert "fix" not in verdict.as_json()["findings"][0]
    verdict.shows_fix = True
    assert verdict.as_json()["findings"][0]["fix"] == "scores / D**0.5"


def test_numbers_that_are_not_finite_are_null_in_json():
    example = Example("weights", torch.tensor([[torch.nan, 0.5]]), torch.tensor([[torch.inf, 0.5]]))
    verdict = Verdict("A", "attention", [Finding("x", "y", example=example)])
    text = json.dumps(verdict.as_json(), allow_nan=False)
    assert json.loads(text)["findings"][0]["example"]["seen"] == [[None, 0.5]]


def test_it_shows_itself_as_text():
    assert "no scale" in repr(Verdict("A", "attention", [MISTAKE]))

import pytest

import regard
from regard.mistakes.search import MISTAKES
from regard.school.check.verdict import KNOWN, Finding, Verdict
from regard.school.grading.rubric import PART_OF, PARTS, PartScore, part_states, points_for, score_task

LETTERS = {"right": "+", "wrong": "-", "not reached": "?"}


def states(*findings, task="self-attention", problem=""):
    """A sign for each part, in their order."""
    found = part_states(Verdict("A", task, list(findings), problem=problem))
    assert list(found) == ["runs", "shapes", "scores", "mask", "weights", "merge", "out", "gradients"]
    return "".join(LETTERS[one] for one in found.values())


def test_a_named_mistake_costs_its_part_alone():
    assert states() == "++++++++"
    assert states(Finding("no scale", "", step="scaled")) == "++-+++++"
    assert states(Finding("no scale", "", step="scaled"), Finding("no causal mask", "", step="mask")) == "++--++++"
    assert states(Finding("wrong parameter count", "")) == "+++++++-"
    assert states(Finding("no residual around the attention", "")) == "++++++-+"


def test_a_warning_costs_nothing():
    assert states(Finding("fully masked row gives NaN", "", step="weights", is_warning=True)) == "++++++++"


def test_a_difference_without_a_name_leaves_open_what_comes_after_it():
    assert states(Finding("", "", step="mask")) == "+++-????"
    assert states(Finding("", "", step="mask"), Finding("no output projection", "", step="out")) == "+++-??-?"
    assert states(Finding("", "For 1 token it computes something else.")) == "++++++-+"
    assert states(Finding("", "", step="anything"), task="softmax of a row") == "-???????"


def test_a_layer_that_fails_leaves_everything_else_open():
    failing = "an attention layer"
    assert states(Finding("", "It fails: RuntimeError."), task=failing) == "-???????"
    assert states(Finding("", "The output has another shape.", step="out"), task=failing) == "?-??????"
    assert states(Finding("view of a non-contiguous tensor", "", step="concat"), task=failing) == "?????-??"
    assert states(Finding("does not run", ""), task="") == "-???????"


def test_what_could_not_be_checked_is_open_and_another_task_is_worth_nothing():
    assert states(problem="out of time") == "????????"
    assert states(Finding("another task", "")) == "--------"


def test_every_known_mistake_has_its_part():
    shown = {one.shows for one in MISTAKES} | {one.step for one in KNOWN if one.step}
    assert shown <= set(PART_OF)
    named = {one for ones in PARTS.values() for one in ones} - shown
    steps = {"values", "shared values", "scores", "context"}  # where a difference without a name may begin
    assert named - steps <= {one.name for one in KNOWN}


def test_parts_of_an_exercise_are_right_up_to_the_first_that_is_wrong():
    parts = ["scale", "attention", "answer"]
    verdict = Verdict("attention", "An exercise.", [Finding("no scale", "", step="scaled")])
    assert part_states(verdict, parts) == {"scale": "right", "attention": "wrong", "answer": "not reached"}
    verdict = Verdict("week3", "An exercise.", [Finding("answer: b", "")])
    assert part_states(verdict, parts) == {"scale": "right", "attention": "right", "answer": "wrong"}
    verdict = Verdict("ana.py", "An exercise.", [Finding("does not run", "")])
    assert part_states(verdict, parts) == dict.fromkeys(parts, "not reached")


RIGHT = Verdict("A", "self-attention").as_json() | {"text": "  ✓ A is right"}
UNSCALED = Verdict("A", "self-attention", [Finding("no scale", "", step="scaled", line=7)]).as_json()
STOPPED = Verdict("A", "", problem="out of time").as_json()


def test_points_are_the_rubrics_scaled_to_those_of_the_task():
    score = score_task("A", [UNSCALED], 10, {"scores": 3, "mask": 2})
    assert score.parts == (
        PartScore("scores", "wrong", 0.0, 6.0, "no scale (line 7)"),
        PartScore("mask", "right", 4.0, 4.0),
    )
    assert (score.points, score.of, score.open) == (4.0, 10.0, 0)


def test_without_a_rubric_it_is_all_or_nothing_and_one_point_unless_said():
    assert score_task("A", [RIGHT], 10).parts == (PartScore("all", "right", 10, 10),)
    assert score_task("A", [UNSCALED]).parts == (PartScore("all", "wrong", 0.0, 1.0, "no scale (line 7)"),)
    assert score_task("A", [STOPPED], 10).open == 10
    assert score_task("A", [RIGHT, UNSCALED], rubric={"scores": 1}).points == 0


def test_the_text_of_a_score_is_printable_and_bounded():
    assert score_task("A", [RIGHT]).text == "  ✓ A is right"
    assert score_task("A", [RIGHT | {"text": "a\x1b[31m\ufeff" + "b" * 30_000}]).text[:18] == r"a\x1b[31m\ufeffbbb"
    assert len(score_task("A", [RIGHT | {"text": "b" * 30_000}]).text) == 20_002


def test_points_for_a_verdict_are_a_number_for_a_notebook():
    class Attention(regard.ladder.SelfAttention):
        def forward(self, x):
            return (self.W_query(x) @ self.W_key(x).mT).softmax(-1) @ self.W_value(x)

    assert points_for(regard.check(Attention), {"scores": 3, "mask": 2}) == 2.0
    with pytest.raises(ValueError, match=r"rubric has no score; it may have runs, shapes, scores, mask"):
        points_for(Verdict("A", ""), {"score": 3})

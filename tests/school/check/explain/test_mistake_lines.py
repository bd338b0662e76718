import pytest
import torch

from benchmarks.check.cases import wrong_layers
from mistakes.cases import mistake, random_case
from regard.mistakes.formula import Formula
from regard.mistakes.search import MISTAKES
from regard.school.check.explain.mistake_lines import holds, line_with, steps_of
from regard.traces.arrangements import Numbers
from school.check.learner import checked, edited

# Where a step is missing, the code has no line for it.
MISSING = ("no scale", "dropout never active", "no output projection", "sequence longer", "fully masked", "super()")
CASES = [case for case in wrong_layers() if not case.names[0].startswith((*MISSING, "hard-coded", "wrong causal"))]


@pytest.mark.slow
def test_the_line_of_a_mistake_is_the_line_that_was_changed_in_nine_of_ten(tmp_path):
    missed = []
    for case in CASES[::11]:
        finding = next(one for one in checked(case.source, tmp_path).findings if one.name.startswith(case.names[0]))
        missed += [] if finding.line in case.lines else [f"{case.names[0]} in {case.layer}: {finding.line}"]
    assert len(missed) <= len(CASES[::11]) // 10, missed


@pytest.mark.parametrize(
    ("layer", "old", "new"),
    [
        ("textbook", "queries = self.W_query(x)", "queries = self.W_key(x)"),
        ("einsum", "v = self.to_v(x)", "v = self.to_k(x)"),
    ],
)
def test_a_projection_used_twice_is_found_where_it_is_used(layer, old, new, tmp_path):
    (finding,) = checked(edited(layer, old, new), tmp_path).mistakes
    assert finding.name.startswith("one projection used twice: the ")
    assert finding.code.startswith(new)


def test_steps_are_given_as_far_as_the_weights_fit():
    case = random_case()
    averaged = (mistake(MISTAKES, "heads averaged instead of concatenated"),)
    assert "out" not in steps_of(case, averaged)  # (B, T, 7) does not fit an output projection of 21 columns
    assert steps_of(case, averaged)["concat"].shape == (2, 5, 7)


def test_a_step_is_held_whole_or_for_one_head():
    scores = Formula().steps(random_case())["scores"]
    assert holds(Numbers(scores.flatten(0, 1)), scores)
    assert holds(Numbers(scores[:, 1]), scores)
    assert not holds(Numbers(scores.mT), scores)
    assert not holds(Numbers(torch.randn(2, 5, 5)), scores)


def test_a_line_is_found_unless_it_is_too_long_to_search():
    assert line_with("a = 1\nself.drop = 2", r"self\.drop") == 2
    assert line_with("self.drop = " + "1" * 1000, r"self\.drop") == 0


def test_a_line_of_a_docstring_is_no_line_of_code():
    assert line_with('"""\nmask: 1 = real\n"""\nx = 1\nscores = scores + mask\n', "mask") == 5

import pytest

from benchmarks.check.cases import wrong_layers
from sampled import quick_every
from school.check.learner import checked, edited

# All of them by `python -m benchmarks check`. Of these two, the step beside the right one is told, or the line above.
HARD = ("exponentials without a sum", "context divided")
UNKNOWN = [case for case in wrong_layers("unknown.txt") if not case.names[0].startswith(HARD)]


@pytest.mark.parametrize("case", quick_every(4, UNKNOWN[::3], lambda case: case.names[0]))
def test_a_mistake_without_a_name_gets_none_and_its_first_step_is_told(case, tmp_path):
    step = case.names[0].rpartition(": ")[2]
    (finding,) = checked(case.source, tmp_path).mistakes
    assert finding.name == ""
    assert "no known mistake explains it" in finding.says
    assert finding.step == step
    assert finding.example is not None
    if "window" not in case.names[0]:  # there, the mask is made in one line and used in another
        assert finding.line in case.lines


def test_a_layer_that_may_be_causal_or_not_is_followed_as_it_is(tmp_path):
    source = edited("masked_loop", "return self.out(", "return F.gelu(self.out(").replace("dim=-1))", "dim=-1)))")
    (finding,) = checked(source, tmp_path).mistakes
    assert finding.step == "out"

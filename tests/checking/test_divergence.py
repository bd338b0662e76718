import pytest

from checking.learner import checked
from regard.bench.check_cases import wrong_layers

UNKNOWN = wrong_layers("unknown.txt")  # all of them by `regard bench check`


@pytest.mark.parametrize("case", UNKNOWN[::2], ids=lambda case: case.names[0])
def test_a_mistake_without_a_name_gets_none_and_its_first_step_is_told(case, tmp_path):
    step = case.names[0].rpartition(": ")[2]
    (finding,) = checked(case.source, tmp_path).mistakes
    assert finding.name == ""
    assert "no known mistake explains it" in finding.says
    assert finding.step == step
    assert finding.example is not None
    if "window" not in case.names[0]:  # there, the mask is made in one line and used in another
        assert finding.line in case.lines

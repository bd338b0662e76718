import pytest

from school.check.learner import checked, edited


@pytest.mark.parametrize(
    ("new", "name", "says"),
    [
        ("self.wo(joined)", "no return", "forward returns nothing."),
        (
            "return self.wo(joined[:, -1])",
            "last token returned",
            "It returns (2, 21): of 5 tokens, only the last is used.",
        ),
        ("return self.wo(joined).mT", "output transposed", "It returns (2, 21, 5), which is (B, width, T)"),
        (
            "return torch.cat(contexts, dim=1)",
            "heads joined on the wrong axis",
            "It returns (2, 15, 7) for 2 texts of 5 tokens: the heads are joined one after the other.",
        ),
        (
            "return torch.stack(contexts, dim=1)",
            "heads not joined",
            "It returns (2, 3, 5, 7): the heads are still apart.",
        ),
    ],
)
def test_a_result_that_is_no_output_has_a_name_and_the_line_of_it(new, name, says, tmp_path):
    source = edited("loop", "return self.wo(joined)", new)
    (finding,) = checked(source, tmp_path).mistakes
    assert finding.name == name
    assert finding.says.startswith(says)
    assert finding.code == new


def test_another_shape_is_told_without_a_name(tmp_path):
    (finding,) = checked(edited("loop", "return self.wo(joined)", "return self.wo(joined).sum()"), tmp_path).mistakes
    assert finding.name == ""
    assert finding.says.startswith("It returns () for x of 2 texts")

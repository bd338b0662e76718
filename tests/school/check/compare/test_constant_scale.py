import pytest

from school.check.learner import checked, edited


def test_a_constant_scale_is_named_with_its_number(tmp_path):
    (finding,) = checked(edited("loop", "self.d_k**0.5", "8"), tmp_path).mistakes
    assert finding.name == "scale is a constant"
    assert finding.says == "The scores are divided by 8, whatever the size of the heads; here it is √head_dim = √7."


@pytest.mark.parametrize(("layer", "old"), [("textbook", "self.head_dim**0.5"), ("einsum", "math.sqrt(D)")])
def test_a_constant_is_read_from_all_heads_at_once(layer, old, tmp_path):
    (finding,) = checked(edited(layer, old, "math.sqrt(64)"), tmp_path).mistakes
    assert finding.name == "scale is a constant"
    assert "divided by 8," in finding.says


@pytest.mark.slow
def test_a_constant_says_nothing_about_the_future_where_a_mask_is_passed(tmp_path):
    verdict = checked(edited("cross", "math.sqrt(query.size(-1))", "8"), tmp_path)
    assert [one.name for one in verdict.mistakes] == ["scale is a constant"]


@pytest.mark.slow
def test_a_factor_that_changes_with_the_sizes_is_no_constant(tmp_path):
    (finding,) = checked(edited("loop", "self.d_k**0.5", "(2 * self.d_k**0.5)"), tmp_path).mistakes
    assert finding.name == ""

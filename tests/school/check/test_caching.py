import pytest

from benchmarks.check.cases import right_layers, wrong_layers
from school.check.learner import checked, edited

NAME = "wrong causal offset with a cache"
CASES = [case for case in wrong_layers() if case.names == (NAME,)]


def test_a_cache_with_the_right_offset_is_right(tmp_path):
    assert checked(right_layers()["cached"], tmp_path).findings == []


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_a_mask_that_forgets_the_cache_is_named(case, tmp_path):
    verdict = checked(case.source, tmp_path)
    assert [one.name for one in verdict.findings][:1] == [NAME]


def test_a_mask_that_forgets_the_cache_for_several_new_tokens_is_a_warning(tmp_path):
    verdict = checked(CASES[1].source, tmp_path)
    assert verdict.is_right
    assert [one.name for one in verdict.warnings] == [NAME]


def test_the_offset_is_named_beside_a_mistake_in_the_scores(tmp_path):
    source = CASES[0].source.replace(" / self.head_dim**0.5", "")
    assert [one.name for one in checked(source, tmp_path).findings] == ["no scale", NAME]


def test_a_cache_that_loses_its_keys_has_no_name(tmp_path):
    source = edited("cached", "v = torch.cat([cache[1], v], dim=2)", "v = torch.cat([0 * cache[1], v], dim=2)")
    (finding,) = checked(source, tmp_path).mistakes
    assert finding.name == ""
    assert finding.says == "With a cache, the output for the last token is another than without one."


def test_a_cache_that_fails_is_told(tmp_path):
    source = edited("cached", "cache[1], v], dim=2", "cache[1], v], dim=7")
    (finding,) = checked(source, tmp_path).mistakes
    assert finding.says.startswith("With a cache it fails at the last token:")

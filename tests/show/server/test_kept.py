"""Reports are kept up to so many bytes; the least recently used go first."""

import pytest

from regard.show.page.payload import PageData
from regard.show.server.kept import KeptReport, KeptReports


def report(size):
    return KeptReport(b"{}", {"weights.0.0.0": b"w" * (size - 2)})


def test_a_page_is_kept_as_json_with_its_blocks():
    kept = KeptReport.of(PageData({"title": "猫"}, {"strongest.0": b"12345"}))
    assert kept.document == '{"title":"猫"}'.encode()
    assert kept.size == len(kept.document) + 5


def test_the_least_recently_used_is_removed_first():
    kept = KeptReports(most=30)
    for name in "abc":
        kept.add(name, report(10))
    assert kept.get("a") is not None
    kept.add("d", report(10))
    assert [name for name in "abcd" if kept.get(name) is not None] == ["a", "c", "d"]
    assert (len(kept), kept.size) == (3, 30)


def test_the_newest_is_kept_even_if_it_is_larger_than_all_may_be():
    kept = KeptReports(most=30)
    kept.add("a", report(10))
    kept.add("b", report(50))
    assert (kept.get("a"), len(kept), kept.size) == (None, 1, 50)


def test_the_same_report_again_counts_once():
    kept = KeptReports(most=30)
    kept.add("a", report(10))
    kept.add("a", report(12))
    assert (len(kept), kept.size) == (1, 12)


def test_memory_is_bounded_however_many_are_added():
    kept = KeptReports(most=1000)
    for number in range(500):
        kept.add(str(number), report(2 + number % 97))
        assert kept.size <= 1000
    assert kept.size == sum(kept.get(str(number)).size for number in range(500) if kept.get(str(number)))


@pytest.mark.parametrize(("one", "other"), [(("a", "bc"), ("ab", "c")), (("tiny", "x"), ("tiny", "y"))])
def test_an_id_is_of_model_and_text_and_cannot_be_computed_elsewhere(one, other):
    kept = KeptReports(most=30)
    assert kept.id(*one) == kept.id(*one) != kept.id(*other)
    assert KeptReports(most=30).id(*one) != kept.id(*one)

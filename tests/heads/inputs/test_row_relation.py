"""Origins of rows are merged where a row is computed from two."""

from regard.heads.inputs.row_relation import MOST, UNRELATED, Related, Relation, RowOrigin


def test_a_row_that_is_computed_from_two_has_the_spaces_and_the_sources_of_both():
    keys = RowOrigin(frozenset({7}), frozenset({7}))
    one, other = RowOrigin(frozenset({2}), frozenset({2}), None, 5), RowOrigin(frozenset({3}), frozenset({3}), keys)
    assert one.merged(other) == RowOrigin(frozenset({2, 3}), frozenset({2, 3}), keys, 5)


def test_the_first_spaces_are_kept_of_many():
    many = RowOrigin(frozenset(range(MOST + 3)))
    assert many.merged(RowOrigin(frozenset({50}))).rows == frozenset(range(MOST))


def test_nothing_is_related_where_nothing_is_followed():
    assert not UNRELATED.is_other_text
    assert Related(None, Relation.OTHER).is_other_text

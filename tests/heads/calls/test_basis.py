"""How a report knows what it says: marks, plain values for files, and what is refused in them."""

import pytest

from regard.heads.calls.basis import FROM_CALL, FROM_MASK, USUAL, Basis, Fact, How, assumed, unknown

MIXED = Basis(
    weights=Fact(How.CALL, "rows sum to 0.10 – 0.90"),
    heads=assumed("6 matrices are 3 heads for each of 2 texts"),
    positions=unknown("5 queries for 15 keys"),
    padding=FROM_MASK,
    tokens=FROM_CALL,
)


def test_what_is_assumed_or_unknown_is_marked_and_the_rest_is_not():
    assert USUAL.marks == ()
    assert MIXED.marks == (
        "heads assumed: 6 matrices are 3 heads for each of 2 texts",
        "positions unknown: 5 queries for 15 keys",
        "weights: rows sum to 0.10 – 0.90",
    )


def test_tokens_are_marked_where_they_are_assumed_only():
    assert Basis(tokens=unknown("no ids")).marks == ()
    assert Basis(tokens=assumed("by length")).marks == ("tokens assumed: by length",)


def test_a_basis_says_how_each_thing_is_known():
    lines = str(MIXED).splitlines()
    assert lines[2:] == ["positions: unknown: 5 queries for 15 keys", "padding: from the mask", "tokens: from the call"]


@pytest.mark.parametrize("basis", [USUAL, MIXED], ids=["usual", "mixed"])
def test_a_basis_comes_back_from_its_plain_values(basis):
    assert Basis.of_plain(basis.plain()) == basis


@pytest.mark.parametrize("plain", [{"widths": ["CALL", ""]}, {"heads": ["GUESSED", ""]}, {"heads": ["CALL", 3]}, ["x"]])
def test_other_values_are_no_basis(plain):
    with pytest.raises(ValueError, match="basis"):
        Basis.of_plain(plain)

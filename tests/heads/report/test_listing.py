"""Listings are sequences that print as tables."""

from collections.abc import Sequence

import pytest

from heads.reports import two_layers
from regard.heads.report.listing import Listing


def test_a_listing_is_a_sequence():
    listing = Listing(iter("abc"))
    assert isinstance(listing, Sequence)
    assert (len(listing), list(listing), listing[-1], listing[1:]) == (3, ["a", "b", "c"], "c", ["b", "c"])


@pytest.mark.parametrize(
    "listing", [two_layers().heads(), two_layers().at(1, text=0)], ids=lambda one: type(one).__name__
)
def test_what_a_report_lists_prints_as_its_table_and_in_a_notebook_as_html(listing):
    assert isinstance(listing, Listing)
    assert repr(listing) == listing.table(width=80)
    assert len(listing.table(all=True).splitlines()) >= len(listing)
    assert listing._repr_html_().startswith("<")

"""The picture of a mask."""

import textwrap

import pytest
import torch

from regard import causal, dense, documents, padding, window


def picture(text):
    return textwrap.dedent(text).strip("\n")


PICTURES = {
    "causal": (
        lambda: causal(),
        """
        causal        ■ may attend   · hidden   (rows: queries, columns: keys)
          ■ · · · · ·
          ■ ■ · · · ·
          ■ ■ ■ · · ·
          ■ ■ ■ ■ · ·
          ■ ■ ■ ■ ■ ·
          ■ ■ ■ ■ ■ ■
        """,
    ),
    "first of a batch": (
        lambda: causal() & padding([2, 3]),
        """
        causal & padding(2, 3)        ■ may attend   · hidden   (rows: queries, columns: keys)
          ■ · ·
          ■ ■ ·
          ■ ■ ·
          (batch element 0 of 2)
        """,
    ),
    "queries at the end of the keys": (
        lambda: causal() & (dense(torch.ones(2, 4, dtype=torch.bool)) | ~window(1)),
        """
        causal & (dense(2, 4) | ~window(1))        ■ may attend   · hidden   (rows: queries, columns: keys)
          ■ ■ ■ ·
          ■ ■ ■ ■
        """,
    ),
    "not of a pair": (
        lambda: ~(window(1) & documents([5, 5])),
        """
        ~(window(1) & documents(5, 5))        ■ may attend   · hidden   (rows: queries, columns: keys)
          · ■
          ■ ·
        """,
    ),
    "left padded": (
        lambda: padding(torch.tensor([[False, True]])),
        """
        padding        ■ may attend   · hidden   (rows: queries, columns: keys)
          · ■
          · ■
        """,
    ),
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_mask_shows_itself_as_a_picture(name):
    mask, wanted = PICTURES[name]
    assert repr(mask()) == picture(wanted)


def test_a_large_mask_shows_its_corner():
    lines = repr(documents(torch.arange(100) // 30)).splitlines()
    assert lines[0].startswith("documents(0, 0, 0, 0, 0, 0, …)        ■ may attend")
    assert lines[1:] == ["  " + "■ " * 24 + "…"] * 12 + ["  …"]


@pytest.mark.parametrize("mask", [padding([]), documents([]), padding([0])], ids=["no batch", "no ids", "no keys"])
def test_an_empty_mask_still_has_a_name(mask):
    assert "■ may attend" in repr(mask)


def test_a_picture_of_rules_of_two_sizes_does_not_fail():
    assert repr(padding([3, 5]) & documents([0, 0, 1, 1])).startswith("padding(3, 5) & documents(0, 0, 1, 1)")


def test_a_picture_is_never_smaller_than_what_it_hides():
    assert repr(padding([3])).splitlines()[1] == "  ■ ■ ■ · · ·"
    assert len(repr(causal() | padding([3])).splitlines()) == 7
    row = repr(dense(torch.tensor([[True, True, False, True, True]]))).splitlines()
    assert row[1:] == ["  ■ ■ · ■ ■"] * 5

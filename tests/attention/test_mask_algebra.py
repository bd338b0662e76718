"""What a mask is, in every accepted form, how masks and tensors combine, their pictures and their form in files."""

import textwrap

import pytest
import torch

from helpers import says_it_ourselves
from regard import causal, dense, documents, padding, window
from regard.attention.mask_algebra import MAKERS
from regard.attention.masks import CAUSAL, Causal, Dense, Documents, Not, Padding, Window, as_mask

B, H, T, S = 2, 3, 5, 7


ROWS, COLS = torch.arange(T)[:, None], torch.arange(S)


def full(mask, T=T, S=S):
    """The mask as a tensor of its whole shape."""
    return mask.dense(T, S).expand(B, H, T, S)


def test_padding_by_lengths_keeps_that_many_keys_from_the_left():
    wanted = torch.stack([COLS < 4, COLS < 0])[:, None, None].expand(B, H, T, S)
    assert torch.equal(full(padding([4, 0])), wanted)
    assert torch.equal(full(padding(torch.tensor([4, 0]))), wanted)


def test_padding_by_tensor_keeps_the_true_keys():
    keep = torch.rand(B, S) < 0.5
    assert torch.equal(full(padding(keep)), keep[:, None, None].expand(B, H, T, S))


@pytest.mark.parametrize("shape", [(T, S), (B, T, S), (B, H, T, S), (1, S), (T, 1), (1, 1, T, S), (B, 1, 1, S)])
def test_dense_says_what_its_tensor_says(shape):
    seen = torch.rand(shape) < 0.5
    whole = seen[:, None] if seen.dim() == 3 else seen
    assert torch.equal(full(dense(seen)), whole.expand(B, H, T, S))


def test_a_mask_combines_with_a_tensor():
    seen = torch.rand(T, S) < 0.5
    assert torch.equal(full(causal() & seen), full(causal()) & seen)
    assert torch.equal(full(causal() | torch.tensor([4, 0])), full(causal() | padding([4, 0])))


def test_a_tensor_combines_with_a_mask():
    seen = torch.rand(T, S) < 0.5
    assert torch.equal(full(seen & causal()), full(causal()) & seen)


def test_any_accepted_form_becomes_a_mask():
    mask = causal()
    assert as_mask(mask) is mask
    assert full(as_mask(None)).all()
    assert torch.equal(full(as_mask([4, 0])), full(padding([4, 0])))
    assert torch.equal(full(as_mask(torch.tensor([4, 0]))), full(padding([4, 0])))
    seen = torch.rand(B, T, S) < 0.5
    assert torch.equal(full(as_mask(seen)), full(dense(seen)))


@pytest.mark.parametrize(
    "keep",
    [torch.ones(2, 3), torch.ones(2, 3, dtype=torch.long), torch.ones(3, dtype=torch.bool), torch.ones(3)],
)
def test_padding_of_another_kind_says_what_it_is_and_what_to_try(keep):
    kind = f"{str(keep.dtype).removeprefix('torch.')} of shape \\({', '.join(map(str, keep.shape))},?\\)"
    rule = r"padding takes whole lengths \(B,\) or a bool tensor \(B, S\), True = real"
    with pytest.raises(ValueError, match=rf"{rule}; this is {kind}; try attention_mask.bool\(\) or attention_mask.sum"):
        padding(keep)


@pytest.mark.parametrize(
    "seen", [torch.zeros(3, 5), torch.ones(3, dtype=torch.bool), torch.ones(3, 5, dtype=torch.long)]
)
def test_a_mask_that_is_not_bool_says_how_to_make_it_so(seen):
    shapes = r"\(T, S\), \(B, T, S\) or \(B, H, T, S\)"
    rule = rf"a mask must be bool of shape {shapes}, True = may attend; this is \w+ of shape \(.*\)"
    with pytest.raises(ValueError, match=rf"{rule}; try mask != 0 for a 0/1 mask, mask == 0 for a 0/−inf one"):
        dense(seen)


@says_it_ourselves
def test_masks_combine_with_nothing_else():
    with pytest.raises(TypeError, match=r"masks combine with masks, tensors and lengths, not with str"):
        causal() & "padding"


def test_a_list_of_lengths_combines_too():
    assert torch.equal((causal() & [2, 3]).dense(3), (causal() & padding([2, 3])).dense(3))


@says_it_ourselves
def test_lengths_below_zero_are_refused():
    with pytest.raises(ValueError, match=r"lengths \(3, -1\) count keys, so none may be below 0"):
        padding([3, -1]).check(B=2, H=1, T=3, S=3)


@says_it_ourselves
def test_lengths_that_are_no_whole_numbers_are_refused():
    with pytest.raises(ValueError, match=r"padding takes whole lengths"):
        padding([2.7, 3.2])


@says_it_ourselves
def test_something_that_is_no_mask_is_refused():
    with pytest.raises(ValueError, match=r"mask must be a regard mask, a bool tensor or key lengths, not str"):
        as_mask("causal")


def picture(text):
    return textwrap.dedent(text).strip("\n")


PICTURES = {
    "causal": (
        lambda: causal(),
        """
        causal    ■ may attend   · hidden   (rows: queries, columns: keys)
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
        causal & padding(2, 3)    ■ may attend   · hidden   (rows: queries, columns: keys)
          ■ · ·
          ■ ■ ·
          ■ ■ ·
          (batch element 0 of 2)
        """,
    ),
    "queries at the end of the keys": (
        lambda: causal() & (dense(torch.ones(2, 4, dtype=torch.bool)) | ~window(1)),
        """
        causal & (dense(2, 4) | ~window(1))    ■ may attend   · hidden   (rows: queries, columns: keys)
          ■ ■ ■ ·
          ■ ■ ■ ■
        """,
    ),
    "not of a pair": (
        lambda: ~(window(1) & documents([5, 5])),
        """
        ~(window(1) & documents(5, 5))    ■ may attend   · hidden   (rows: queries, columns: keys)
          · ■
          ■ ·
        """,
    ),
    "left padded": (
        lambda: padding(torch.tensor([[False, True]])),
        """
        padding    ■ may attend   · hidden   (rows: queries, columns: keys)
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
    assert lines[0].startswith("documents(0, 0, 0, 0, 0, 0, …)    ■ may attend")
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


def test_every_kind_has_the_function_that_makes_it_again_but_a_tensor_which_is_written_out():
    assert set(MAKERS) == {"everything", "and", "or", "not", "padding", "causal", "window", "documents"}
    kinds = (Not, Padding, Causal, Window, Documents)
    assert [kind.file_kind for kind in kinds] == ["not", "padding", "causal", "window", "documents"]
    assert Dense.file_kind is None


def test_masks_made_again_hide_the_same():
    keep = torch.tensor([[True, False, True]])
    both = MAKERS["and"](MAKERS["causal"](), MAKERS["padding"](keep=keep))
    assert torch.equal(both.dense(3), (CAUSAL & Padding(keep)).dense(3))

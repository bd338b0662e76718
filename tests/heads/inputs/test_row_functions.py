"""What functions do to rows: which ones a slice takes, and which arguments of a model are texts."""

import pytest
import torch

from regard.heads.inputs.row_functions import (
    joined_axis,
    may_be_text,
    may_mix_rows,
    rows_indexed,
    rows_taken,
    tensors_given,
)

B, T, E = 2, 7, 5
ROWS = torch.zeros(B, T, E)
HEADS = torch.zeros(B, 3, T, E)


@pytest.mark.parametrize(
    ("tensor", "key", "rows"),
    [
        (ROWS, (slice(None), slice(1, None)), (1, T - 1, 1)),
        (ROWS, (slice(None), slice(None, None, 2)), (0, 4, 2)),
        (ROWS, (slice(0, 1),), (0, 1, 1)),  # other texts
        (ROWS, (Ellipsis, slice(0, 2)), None),  # features
        (ROWS, (slice(None), None, slice(None)), None),
        (ROWS, 0, None),
        (HEADS, (slice(None), slice(0, 2)), None),  # heads
        (HEADS, (Ellipsis, slice(2, 4), slice(None)), (2, 2, 1)),
    ],
)
def test_an_index_takes_rows_where_it_slices_the_axis_of_tokens(tensor, key, rows):
    assert rows_indexed(tensor, key, T) == rows


def test_parts_of_a_split_have_the_rows_after_those_of_the_part_before():
    parts = ROWS.split((2, 4, 1), 1)
    taken = [rows_taken("split", (ROWS, (2, 4, 1), 1), parts, i, T) for i in range(3)]
    assert taken == [(0, 2, 1), (2, 4, 1), (6, 1, 1)]
    features = ROWS.split((2, 3), -1)
    assert rows_taken("split", (ROWS, (2, 3), -1), features, 1, T) is None
    assert rows_taken("narrow", (ROWS, 1, 3, 2), [ROWS.narrow(1, 3, 2)], 0, T) == (3, 2, 1)


def test_a_linear_layer_mixes_tokens_where_they_are_transposed_into_its_features():
    assert may_mix_rows(ROWS.mT, T)
    assert not may_mix_rows(ROWS, T)
    assert not may_mix_rows(torch.zeros(B, T, T), T)


def test_tensors_are_joined_along_the_axis_that_is_given():
    assert joined_axis("cat", ([ROWS, ROWS], -2), {}, ROWS) == 1
    assert joined_axis("cat", ([ROWS, ROWS],), {"dim": 2}, ROWS) == 2
    assert joined_axis("cat", ([ROWS, ROWS],), {}, ROWS) == 0


def test_texts_are_told_from_what_describes_them():
    ids, mask = torch.zeros(B, T, dtype=torch.long), torch.ones(B, T, dtype=torch.bool)
    given = tensors_given(("input_ids",), (ids, mask), {"position_ids": ids, "encoder_outputs": (ROWS, None), "n": 3})
    assert [name for name, tensor in given if may_be_text(name, tensor)] == ["input_ids", "encoder_outputs"]
    assert not may_be_text("timestep", torch.zeros(B))

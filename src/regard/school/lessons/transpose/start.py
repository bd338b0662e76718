"""view, transpose, contiguous: what they do in memory.

A tensor's numbers lie in one long row. Strides say how many numbers to skip
for one step along each axis. Shape (2, 3) has strides (3, 1):

    [0 1 2]    in memory: 0 1 2 3 4 5    one row down: 3 numbers on
    [3 4 5]                              one column right: 1 number on

transpose moves no number. It swaps the sizes and the strides: shape (3, 2),
strides (1, 3). Reading it row by row now jumps: 0 3 1 4 2 5.
view only groups the row differently, so reading row by row must walk through
memory without a jump (transpose) and without a gap (t[:, :2] skips the 2 and
the 5). Such a tensor is contiguous; contiguous() makes one, by a copy.

Write these four functions on tuples such as (2, 3), then answer the question.
"""

import torch


def strides_of(shape):
    """The strides of a new tensor; (2, 3, 4) gives (12, 4, 1)."""
    strides = []
    step = 1
    for size in reversed(shape):
        ...
    return tuple(strides)


def offset(index, strides):
    """The position in memory of t[index]; (1, 2) and (3, 1) give 5."""
    return ...


def swap(sizes, a, b):
    """The sizes, or the strides, after transpose(a, b)."""
    return ...


def is_contiguous(shape, strides):
    """Is it read without a jump or a gap? Sizes are 2 or more."""
    return ...


# Which of these must copy the numbers?
#    a  x.view(2, 5, 3, 4)      for a new x of shape (2, 5, 12)
#    b  x.transpose(1, 2)
#    c  x.transpose(1, 2).contiguous()
copies = ...  # a letter in quotes, such as "a"

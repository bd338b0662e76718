import torch


def strides_of(shape):
    """The strides of a new tensor; (2, 3, 4) gives (12, 4, 1)."""
    strides = []
    step = 1
    for size in reversed(shape):
        strides.insert(0, step)
        step *= size
    return tuple(strides)


def offset(index, strides):
    """The position in memory of t[index]; (1, 2) and (3, 1) give 5."""
    return sum(i * s for i, s in zip(index, strides))


def swap(sizes, a, b):
    """The sizes, or the strides, after transpose(a, b)."""
    result = list(sizes)
    result[a], result[b] = result[b], result[a]
    return tuple(result)


def is_contiguous(shape, strides):
    """Is it read without a jump or a gap? Sizes are 2 or more."""
    return strides == strides_of(shape)


copies = "c"

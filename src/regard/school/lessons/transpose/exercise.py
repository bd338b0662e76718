"""view, transpose, contiguous."""

import math

import torch

from regard.school.exercises import Function, Question, Wrong

PRIMES = [2, 3, 5, 7]


def a_shape(random):
    return tuple(PRIMES[i] for i in torch.randperm(4, generator=random).tolist())


def right_strides(shape):
    strides, step = [], 1
    for size in reversed(shape):
        strides.insert(0, step)
        step *= size
    return tuple(strides)


def right_swap(sizes, a, b):
    result = list(sizes)
    result[a], result[b] = result[b], result[a]
    return tuple(result)


def index_and_strides(random):
    shape = a_shape(random)
    return tuple(size - 1 for size in shape), right_swap(right_strides(shape), 1, 2)


def sizes_and_axes(random):
    a = int(torch.randint(2, (1,), generator=random))
    return a_shape(random), a, a + 2


def in_order(random):
    shape = a_shape(random)
    return shape, right_strides(shape)


def transposed(random):
    shape, strides = in_order(random)
    return right_swap(shape, 1, 2), right_swap(strides, 1, 2)


def square(random):
    """Both sizes are equal, so the strides are those of a new tensor, in another order."""
    n = PRIMES[int(torch.randint(1, 4, (), generator=random))]
    return (n, n), (1, n)


def sliced(random):
    """As x[:, :, :2] has them: the strides of a larger tensor, in their order, with gaps in memory."""
    shape, strides = in_order(random)
    axis = int(torch.randint(1, 4, (), generator=random))
    larger = tuple(size + 2 * (i == axis) for i, size in enumerate(shape))
    return shape, right_strides(larger)


def overwrite(sizes, a, b):
    result = list(sizes)
    result[a] = result[b]
    return tuple(result)


parts = [
    Function(
        "strides_of",
        lambda random: (a_shape(random),),
        right=right_strides,
        wrong=[
            Wrong(
                "backwards",
                "The strides of {0} come in reverse order: the last axis has stride 1.",
                lambda shape: right_strides(shape)[::-1],
                why="The loop starts with the last axis, so each stride goes in front of those that are there.",
            ),
            Wrong(
                "size counted too early",
                "Every stride of {0} holds its own size too; one step along an axis skips the axes after it.",
                lambda shape: tuple(step * size for step, size in zip(right_strides(shape), shape, strict=True)),
                why="First note the step, then multiply it by the size.",
            ),
            Wrong(
                "sizes instead of strides",
                "The result is the shape itself, {0}; a stride is the product of the sizes after it.",
                lambda shape: tuple(shape),
            ),
            Wrong(
                "shape reversed",
                "The result is the shape in reverse order; a stride is the product of the sizes after it.",
                lambda shape: tuple(shape)[::-1],
            ),
            Wrong(
                "added instead of multiplied",
                "The step grows by the size; it is multiplied by it.",
                lambda shape: tuple(1 + sum(shape[i + 1 :]) for i in range(len(shape))),
            ),
            Wrong(
                "step never grows",
                "Every stride is 1: the step is not multiplied by the size.",
                lambda shape: (1,) * len(shape),
            ),
            Wrong(
                "from the wrong end",
                "The last axis has stride 1, the first the largest; these were multiplied from the other end.",
                lambda shape: tuple(reversed(right_strides(tuple(reversed(shape))))),
            ),
            Wrong(
                "size of the next axis only",
                "Each stride is the size of the next axis alone; it is the product of all sizes after it.",
                lambda shape: (*shape[1:], 1),
            ),
        ],
    ),
    Function(
        "offset",
        index_and_strides,
        right=lambda index, strides: sum(i * s for i, s in zip(index, strides, strict=True)),
        wrong=[
            Wrong(
                "indices added up",
                "The indices are added up; multiply each by its stride first.",
                lambda index, strides: sum(index),
            ),
            Wrong(
                "not added up",
                "These are the products for each axis; the offset is one number, their sum.",
                lambda index, strides: [i * s for i, s in zip(index, strides, strict=True)],
            ),
            Wrong(
                "multiplied up",
                "All products are multiplied with each other; they are added up.",
                lambda index, strides: math.prod(index) * math.prod(strides),
            ),
            Wrong(
                "counted from 1",
                "The offset is one too high: the first number has offset 0.",
                lambda index, strides: 1 + sum(i * s for i, s in zip(index, strides, strict=True)),
            ),
            Wrong(
                "added instead of multiplied",
                "Index and stride are added; each index is multiplied by its stride.",
                lambda index, strides: sum(index) + sum(strides),
            ),
            Wrong(
                "sums multiplied",
                "The indices are added up, the strides too, and then multiplied; each index belongs to its own stride.",
                lambda index, strides: sum(index) * sum(strides),
            ),
            Wrong(
                "strides reversed",
                "The strides are read from the other end; index i belongs to stride i.",
                lambda index, strides: sum(i * s for i, s in zip(index, reversed(strides))),
            ),
            Wrong(
                "last axis only",
                "Only the last axis counts; all of them do.",
                lambda index, strides: index[-1] * strides[-1],
            ),
            Wrong(
                "indices counted from 1",
                "Indices are counted from 0: t[0, 0] is at offset 0.",
                lambda index, strides: sum((i + 1) * s for i, s in zip(index, strides)),
            ),
        ],
    ),
    Function(
        "swap",
        sizes_and_axes,
        right=right_swap,
        wrong=[
            Wrong(
                "all axes reversed",
                "All sizes are in reverse order; swap axes {1} and {2} only.",
                lambda sizes, a, b: tuple(sizes)[::-1],
            ),
            Wrong(
                "neighbours swapped",
                "Axis {1} changes places with the one after it; it must with axis {2}.",
                lambda sizes, a, b: right_swap(sizes, a, a + 1),
            ),
            Wrong(
                "one size overwritten",
                "One size is there twice: it was overwritten before it was moved.",
                overwrite,
                why="Python swaps without a helper: x, y = y, x.",
            ),
            Wrong(
                "tuple changed",
                "A tuple cannot be changed. Make a list of it first, swap two entries there, return tuple(…) of it.",
                raises="'tuple' object does not support item assignment",
            ),
            Wrong(
                "nothing swapped", "The sizes are as before; swap axes {1} and {2}.", lambda sizes, a, b: tuple(sizes)
            ),
            Wrong(
                "only the last two axes",
                "The last two axes are swapped, whatever a and b are; here they are {1} and {2}.",
                lambda sizes, a, b: right_swap(sizes, -1, -2),
            ),
        ],
    ),
    Function(
        "is_contiguous",
        in_order,
        right=lambda shape, strides: True,
        wrong=[
            Wrong(
                "never contiguous",
                "A new tensor of shape {0} has strides {1}: its numbers are in memory order.",
                lambda shape, strides: False,
                why="Compare tuples with tuples: (3, 1) == [3, 1] is False.",
            )
        ],
    ),
    Function(
        "is_contiguous",
        transposed,
        right=lambda shape, strides: False,
        wrong=[
            Wrong(
                "transposed counts as contiguous",
                "Shape {0} with strides {1} counts as contiguous, but axes 1 and 2 are swapped in memory.",
                lambda shape, strides: True,
                why="The last axis still has stride 1 after transpose(1, 2). All strides must be a new tensor's.",
            )
        ],
    ),
    Function(
        "is_contiguous",
        square,
        right=lambda shape, strides: False,
        wrong=[
            Wrong(
                "order of the strides ignored",
                "Shape {0} with strides {1} counts as contiguous: the strides are there, in another order.",
                lambda shape, strides: True,
                why="(1, 3) is a transposed square: one row down is one number on. Compare stride by stride.",
            )
        ],
        runs=1,
    ),
    Function(
        "is_contiguous",
        sliced,
        right=lambda shape, strides: False,
        wrong=[
            Wrong(
                "gaps count as contiguous",
                "Shape {0} with strides {1} counts as contiguous: the axes are in order, but numbers between are "
                "skipped.",
                lambda shape, strides: True,
                why="It is a part of a larger tensor, as t[:, :2] is. Compare with the strides of a new tensor.",
            )
        ],
    ),
    Question(
        "copies",
        right="c",
        because={
            "a": "view only groups the numbers differently; a new x is in memory order, so no number has to move.",
            "b": "transpose swaps sizes and strides, the numbers stay. You wrote it yourself: swap.",
        },
    ),
]

import math
import operator


def strides_of(shape):
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def place(index, strides):
    return sum(map(operator.mul, index, strides))


def swap(sizes, a, b):
    return tuple(sizes[{a: b, b: a}.get(axis, axis)] for axis in range(len(sizes)))


def is_contiguous(shape, strides):
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides)):
        if stride != expected:
            return False
        expected *= size
    return True


copies = "c"

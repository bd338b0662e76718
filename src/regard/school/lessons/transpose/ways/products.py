def strides_of(shape):
    from math import prod

    return tuple(prod(shape[i + 1 :]) for i in range(len(shape)))


def offset(index, strides):
    return sum(i * stride for i, stride in zip(index, strides))


def swap(sizes, a, b):
    moved = {a: b, b: a}
    return tuple(sizes[moved.get(i, i)] for i in range(len(sizes)))


def is_contiguous(shape, strides):
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides)):
        if stride != expected:
            return False
        expected *= size
    return True


copies = "c"

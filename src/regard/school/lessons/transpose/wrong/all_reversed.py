# named: all axes reversed
def strides_of(shape):
    strides = []
    step = 1
    for size in reversed(shape):
        strides.insert(0, step)
        step *= size
    return tuple(strides)


def offset(index, strides):
    return sum(i * s for i, s in zip(index, strides))


def swap(sizes, a, b):
    return tuple(reversed(sizes))


def is_contiguous(shape, strides):
    return strides == strides_of(shape)


copies = "c"

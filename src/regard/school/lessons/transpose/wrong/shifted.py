# named: size counted too early
def strides_of(shape):
    strides = []
    step = 1
    for size in reversed(shape):
        step *= size
        strides.insert(0, step)
    return tuple(strides)


def offset(index, strides):
    return sum(i * s for i, s in zip(index, strides))


def swap(sizes, a, b):
    result = list(sizes)
    result[a], result[b] = result[b], result[a]
    return tuple(result)


def is_contiguous(shape, strides):
    return strides == strides_of(shape)


copies = "c"

import torch


def strides_of(shape):
    return torch.empty(shape).stride()


def offset(index, strides):
    return int(torch.tensor(index) @ torch.tensor(strides))


def swap(sizes, a, b):
    order = list(range(len(sizes)))
    order[a], order[b] = b, a
    return tuple(sizes[axis] for axis in order)


def is_contiguous(shape, strides):
    return torch.empty_strided(shape, strides).is_contiguous()


copies = "c"

"""What functions do to the rows of a tensor, its tokens: which keep them, and which choose, join, move or write."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from regard.heads.calls.call import Args, Kwargs

# Arguments that describe the rows of another one.
_DESCRIBES = re.compile(r"mask|posit|type|label|past|cache|pos_|_pos|rotary|freqs|grid|sizes?$|lengths?$", re.I)

CONSTANT = {f"{what}_like" for what in ("zeros", "ones", "empty", "full", "rand", "randn", "randint")} | {
    *("new_zeros", "new_ones", "new_empty", "new_full", "new_tensor", "new_empty_strided"),
}
# Their result has the rows of their first argument, whatever the others are.
LEARNED = {
    *("linear", "layer_norm", "rms_norm", "group_norm", "batch_norm", "instance_norm", "embedding", "embedding_bag"),
}
FIRST = {
    *("masked_fill", "masked_fill_", "type_as", "view_as", "expand_as", "reshape_as", "scaled_dot_product_attention"),
    *("flex_attention", "multi_head_attention_forward", "softmax", "dropout", "to", "conv1d", "conv2d", "conv3d"),
    *("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
}
PRODUCT = {"matmul", "bmm", "mm", "baddbmm", "__matmul__", "__rmatmul__", "einsum"}
JOIN = {"cat", "concat", "concatenate", "stack", "hstack", "vstack"}
SPLIT = {"split", "chunk", "tensor_split", "split_with_sizes", "narrow", "slice", "unbind", "select"}
MOVE = {"roll", "flip", "pad", "flipud", "fliplr", "rot90", "sort", "msort", "topk", "channel_shuffle"}
CHOOSE = {"gather", "index_select", "take_along_dim", "take", "masked_select", "__getitem__"}
WRITE = {
    *("__setitem__", "index_put", "index_put_", "index_copy", "index_copy_", "scatter", "scatter_", "slice_scatter"),
    *("copy_", "masked_scatter", "masked_scatter_", "index_add", "index_add_", "scatter_add", "scatter_add_"),
}
MAY_MOVE = (MOVE | CHOOSE) - {"pad"}  # rows may be in another order afterwards
Rows = tuple[int, int, int]  # the first, how many, and the step


def rows_taken(name: str, args: Args, results: Sequence[Tensor], i: int, length: int | None) -> Rows | None:
    """The rows that the i-th result of a slicing function has; None where it has all of them.

    length: how many rows there are, where that is known.
    """
    tensor, part = args[0], results[i]
    if name == "__getitem__":
        return rows_indexed(tensor, args[1], length)
    if name in ("unbind", "select"):
        axis = (args[1] if len(args) > 1 else 0) % tensor.dim()
        picked = args[2] if name == "select" and len(args) > 2 else i
        return (picked, 1, 0) if _are_texts(tensor, axis, length) else None
    axes = [axis for axis in range(tensor.dim()) if tensor.shape[axis] != part.shape[axis]]
    if not axes or not (_are_tokens(tensor, axes[0], length) or _are_texts(tensor, axes[0], length)):
        return None
    before = sum(result.shape[axes[0]] for result in results[:i])
    return args[2] if name == "narrow" and len(args) > 2 else before, part.shape[axes[0]], 1


def rows_indexed(tensor: Tensor, key: Any, length: int | None) -> Rows | None:
    """The rows that an index takes; None where it takes all. Step 0: one number, which picks a text."""
    keys = key if isinstance(key, tuple) else (key,)
    taken = sum(one is not None and one is not Ellipsis for one in keys)
    axis = 0
    for one in keys:
        if one is Ellipsis:
            axis += tensor.dim() - taken
            continue
        if isinstance(one, int) and _are_texts(tensor, axis, length):
            return one, 1, 0
        if isinstance(one, slice) and (_are_tokens(tensor, axis, length) or _are_texts(tensor, axis, length)):
            rows = range(*one.indices(tensor.shape[axis]))
            if rows != range(tensor.shape[axis]):
                return rows.start, len(rows), rows.step
        axis += one is not None
    return None


def is_slice(key: Any) -> bool:
    """Is an index made of numbers and slices only, and of no lists or tensors?"""
    keys = key if isinstance(key, tuple) else (key,)
    return all(one is None or one is Ellipsis or isinstance(one, (int, slice)) for one in keys)


def _with_axes(tensor: Tensor, key: Any) -> Iterator[tuple[int, Any]]:
    """The axis of each part of an index, also behind an ellipsis."""
    keys, behind = key if isinstance(key, tuple) else (key,), 0
    for axis, one in enumerate(keys):
        behind = tensor.dim() - len(keys) if one is Ellipsis else behind
        yield axis + behind, one


def picks_row(tensor: Tensor, key: Any, length: int | None) -> bool:
    """Does an index have a number for one token, or for one text?"""
    axes = [axis for axis, one in _with_axes(tensor, key) if type(one) is int]
    return tensor.dim() > 2 and any(_are_tokens(tensor, axis, length) for axis in axes)


def index_given(name: str, args: Args) -> tuple[int, Tensor] | None:
    """The axis and the numbers of the rows that are chosen or written, where they are the same for all texts."""
    keys = args[1] if isinstance(args[1], tuple) else (args[1],)
    if name == "__getitem__":
        axis, index = len(keys) - 1, keys[-1]
        is_whole = all(isinstance(one, slice) and one == slice(None) for one in keys[:-1])
    else:  # index_select(t, 0, index), index_add(t, 0, index, source)
        axis, index, is_whole = args[1], args[2], isinstance(args[1], int)
    is_index = isinstance(index, Tensor) and index.dim() == 1 and index.dtype in (torch.int64, torch.int32)
    axis = axis if not is_whole or axis >= 0 else axis + args[0].dim()
    return (axis, index) if is_index and is_whole and args[0].dim() == axis + 2 else None


def may_move(name: str, args: Args) -> bool:
    """May this call of one of MAY_MOVE bring rows into another order?"""
    return name != "__getitem__" or not is_slice(args[1])


def takes_features(tensor: Tensor, key: Any, length: int | None) -> bool:
    """Does a list of numbers choose from axes of features or heads only, and neither from tokens nor from texts?"""
    axes = [axis for axis, one in _with_axes(tensor, key) if isinstance(one, (list, Tensor))]
    others = [one for _, one in _with_axes(tensor, key) if not isinstance(one, (list, Tensor))]
    is_whole = all(one is Ellipsis or (isinstance(one, slice) and one == slice(None)) for one in others)
    return is_whole and 0 not in axes and not any(_are_tokens(tensor, axis, length) for axis in axes)


def _are_texts(tensor: Tensor, axis: int, length: int | None) -> bool:
    """May this axis be of two texts, (B, 2, T, E), of which a number picks one? One of q, k and v lies side by side."""
    if tensor.dim() != 4 or tensor.shape[axis] == 3 or axis >= 2:
        return False
    tokens = next((a for a in (2, 1) if a != axis and tensor.shape[a] == length), 2)
    return axis == 0 or tensor.stride(axis) > tensor.stride(tokens)


def _are_tokens(tensor: Tensor, axis: int, length: int | None) -> bool:
    """May this axis be that of the tokens? The first one is of texts: two of them are not the same."""
    if tensor.dim() < 3:
        return tensor.shape[axis] == length
    if axis == tensor.dim() - 1:
        return False
    return axis == 0 or tensor.shape[axis] == length or (length is None and tensor.dim() == 3)


def may_mix_rows(tensor: Tensor, length: int | None) -> bool:
    """Is the last axis that of the tokens, so that a linear layer mixes them? Then the tensor was transposed."""
    return not tensor.is_nested and tensor.dim() > 2 and tensor.shape[-1] == length and tensor.stride(-1) != 1


def joined_axis(name: str, args: Args, kwargs: Kwargs, out: Tensor) -> int:
    """The axis along which tensors are joined."""
    given = (*args[1:], kwargs.get("dim"), kwargs.get("axis"))
    axis: int = 1 if name == "hstack" else next((value for value in given if value is not None), 0)
    return axis % out.dim()


def tensors_given(names: Sequence[str], args: Args, kwargs: Kwargs) -> Iterator[tuple[str, Tensor]]:
    """The tensors that a module is called with, by name, also those in a tuple, a list or a dict."""
    names = (*names, *("" for _ in args[len(names) :]))
    for name, value in (*zip(names, args, strict=False), *kwargs.items()):
        inner = (
            value.values() if isinstance(value, Mapping) else value if isinstance(value, (tuple, list)) else (value,)
        )
        yield from ((name, one) for one in inner if isinstance(one, Tensor))


def may_be_text(name: str, tensor: Tensor) -> bool:
    """May an argument of a model be the tokens of a text, or an image?"""
    has_rows = not tensor.is_nested and tensor.dim() > 1 and tensor.dtype is not torch.bool
    return has_rows and not _DESCRIBES.search(name)

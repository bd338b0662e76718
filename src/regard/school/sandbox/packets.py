"""Named tensors and JSON as bytes: what goes into a submission's process, and what comes out of it.

A packet is 8 bytes of magic, the length of the header (8 bytes, little-endian), the header (JSON), and the tensors'
bytes one after the other. Nothing in it is code: it is no pickle. Whoever reads one checks every length before memory
is taken, because a submission can write any bytes.
"""

from __future__ import annotations

import ctypes
import json
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

MAGIC = b"REGARD\x00\x01"
LONGEST_HEADER = 4 << 20  # bytes
LONGEST_NAME = 200  # characters
MOST_TENSORS = 4096
MOST_AXES = 16
DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "C128": torch.complex128, "C64": torch.complex64,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
CODES = {dtype: code for code, dtype in DTYPES.items()}


class MalformedPacket(ValueError):
    """The bytes are no packet."""


def pack(tensors: Mapping[str, Tensor], values: Any = None) -> bytes:
    """Write tensors and JSON values as bytes.

    >>> tensors, values = unpack(pack({"x": torch.eye(2)}, {"heads": 3}))
    >>> tensors["x"], values
    (tensor([[1., 0.],
            [0., 1.]]), {'heads': 3})
    """
    entries, parts = [], []
    for name, tensor in tensors.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise TypeError(f"{name!r} is of type {type(tensor).__name__}; a packet holds tensors by name")
        if tensor.dtype not in CODES:
            raise TypeError(f"{name} is {tensor.dtype}; a packet holds {', '.join(map(str, CODES))}")
        plain = tensor.detach().to("cpu").resolve_conj().resolve_neg().contiguous()
        parts.append(ctypes.string_at(plain.data_ptr(), plain.nbytes) if plain.nbytes else b"")
        entries.append([name, CODES[plain.dtype], list(plain.shape)])
    header = json.dumps({"tensors": entries, "values": values}).encode()
    return b"".join([MAGIC, len(header).to_bytes(8, "little"), header, *parts])


def unpack(data: bytes | bytearray) -> tuple[dict[str, Tensor], Any]:
    """The tensors and values of a packet from anywhere; raises MalformedPacket if it is not exactly one."""
    data, start = bytearray(data), len(MAGIC) + 8  # tensors that are made of a bytearray can be changed
    if data[: len(MAGIC)] != MAGIC:
        raise MalformedPacket(f"it begins with {bytes(data[:8])!r}, not with {MAGIC!r}")
    length = int.from_bytes(data[len(MAGIC) : start], "little")
    if len(data) < start or length > min(LONGEST_HEADER, len(data) - start):
        raise MalformedPacket(f"its header of {length} bytes does not fit {len(data)} bytes")
    try:
        header = json.loads(bytes(data[start : start + length]))
    except (ValueError, RecursionError) as error:
        raise MalformedPacket("its header is not JSON") from error
    if not isinstance(header, dict) or set(header) != {"tensors", "values"} or not isinstance(header["tensors"], list):
        raise MalformedPacket("its header is not {tensors, values}")
    if len(header["tensors"]) > MOST_TENSORS:
        raise MalformedPacket(f"it has {len(header['tensors'])} tensors; at most {MOST_TENSORS}")
    tensors: dict[str, Tensor] = {}
    start += length
    for entry in header["tensors"]:
        name, dtype, shape = _checked(entry)
        size = math.prod(shape) * dtype.itemsize
        if name in tensors:
            raise MalformedPacket(f"it has two tensors named {name!r}")
        if size > len(data) - start:
            raise MalformedPacket(f"{name!r} needs {size} bytes; {len(data) - start} are left")
        if not size:
            tensors[name] = torch.empty(shape, dtype=dtype)
        elif dtype == torch.bool:  # a byte other than 0 and 1 would be neither True nor False
            tensors[name] = torch.frombuffer(data[start : start + size], dtype=torch.uint8).view(shape) != 0
        else:
            tensors[name] = torch.frombuffer(data[start : start + size], dtype=dtype).view(shape)
        start += size
    if start != len(data):
        raise MalformedPacket(f"{len(data) - start} bytes are left over")
    return tensors, header["values"]


def _checked(entry: object) -> tuple[str, torch.dtype, list[int]]:
    """Name, dtype and shape of one entry of a header."""
    if not isinstance(entry, list) or len(entry) != 3:
        raise MalformedPacket("an entry of its header is not [name, dtype, shape]")
    name, code, shape = entry
    if not isinstance(name, str) or not name.isprintable() or len(name) > LONGEST_NAME:
        raise MalformedPacket(f"a tensor's name is not a printable text of at most {LONGEST_NAME} characters")
    if not isinstance(code, str) or code not in DTYPES:
        raise MalformedPacket(f"{name!r} has an unknown dtype")
    if not isinstance(shape, list) or len(shape) > MOST_AXES:
        raise MalformedPacket(f"{name!r} has no shape of at most {MOST_AXES} axes")
    if not all(type(length) is int and length >= 0 for length in shape):
        raise MalformedPacket(f"{name!r} has an axis that is no length")
    if math.prod(max(length, 1) for length in shape) > 1 << 48:  # torch computes strides also where an axis is 0
        raise MalformedPacket(f"{name!r} is too large")
    return name, DTYPES[code], shape

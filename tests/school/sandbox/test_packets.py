"""Packets: whatever is written comes back the same; whatever else is read is refused."""

import json
from contextlib import suppress

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.school.sandbox.packets import CODES, MAGIC, MOST_TENSORS, MalformedPacket, pack, unpack


def packet(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return MAGIC + len(text).to_bytes(8, "little") + text + data


def with_entry(*entry: object, data: bytes = b"") -> bytes:
    return packet({"tensors": [list(entry)], "values": None}, data)


@pytest.mark.parametrize("dtype", CODES, ids=str)
def test_every_dtype_comes_back_bit_for_bit(dtype):
    x = torch.randn(3, 5, 7, dtype=torch.float64).mul(9).to(dtype)
    tensors, _ = unpack(pack({"x": x}))
    torch.testing.assert_close(tensors["x"], x, rtol=0, atol=0)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 5), (1,), (2, 3, 5, 7)])
def test_every_shape_comes_back(shape):
    x = torch.randn(shape)
    tensors, _ = unpack(pack({"x": x}))
    torch.testing.assert_close(tensors["x"], x, rtol=0, atol=0)


def test_views_and_tensors_with_gradients_come_back_as_their_values():
    x = torch.randn(5, 7, dtype=torch.complex64, requires_grad=True)
    tensors, values = unpack(
        pack({"part": x.mT[1:3], "conjugate": x.conj(), "wide": x[:, :1].expand(5, 11)}, [7, None])
    )
    torch.testing.assert_close(tensors["part"], x.detach().mT[1:3], rtol=0, atol=0)
    torch.testing.assert_close(tensors["conjugate"], x.detach().conj().resolve_conj(), rtol=0, atol=0)
    torch.testing.assert_close(tensors["wide"], x.detach()[:, :1].expand(5, 11), rtol=0, atol=0)
    assert values == [7, None]


def test_nan_infinity_and_minus_zero_come_back():
    x = torch.tensor([float("nan"), float("inf"), -0.0])
    assert pack({"x": unpack(pack({"x": x}))[0]["x"]}) == pack({"x": x})


def test_what_is_read_can_be_changed():
    tensors, _ = unpack(pack({"x": torch.zeros(3)}))
    tensors["x"] += 1
    torch.testing.assert_close(tensors["x"], torch.ones(3))


def test_a_byte_that_is_no_bool_is_true():
    tensors, _ = unpack(with_entry("x", "BOOL", [3], data=b"\x00\x01\xff"))
    assert tensors["x"].tolist() == [False, True, True]
    assert tensors["x"].view(torch.uint8).tolist() == [0, 1, 1]


@pytest.mark.parametrize("thing", [7, None, [1.0], "x"])
@pytest.mark.usefixtures("without_shape_checks")
def test_only_tensors_are_packed(thing):
    with pytest.raises(TypeError, match="a packet holds tensors by name"):
        pack({"x": thing})


def test_dtypes_without_a_code_are_refused():
    with pytest.raises(TypeError, match=r"x is torch.uint16; a packet holds torch.float64"):
        pack({"x": torch.zeros(3, dtype=torch.uint16)})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "it begins with"),
        (b"\x80\x04garbage", "it begins with"),
        (MAGIC, "does not fit"),
        (MAGIC + b"\xff" * 8, "does not fit"),
        (MAGIC + (9).to_bytes(8, "little") + b"{}", "does not fit 18 bytes"),
        (packet(b"{"), "not JSON"),
        (packet(b"\xff\xfe"), "not JSON"),
        (packet(b"[" * 100_000), "not JSON"),
        (packet(b"9" * 10_000), "not JSON"),
        (packet([]), "not {tensors, values}"),
        (packet({"tensors": []}), "not {tensors, values}"),
        (packet({"tensors": {}, "values": 0}), "not {tensors, values}"),
        (packet({"tensors": [0] * (MOST_TENSORS + 1), "values": 0}), "4097 tensors; at most 4096"),
        (packet({"tensors": [7], "values": 0}), r"not \[name, dtype, shape\]"),
        (with_entry("x", "F32"), r"not \[name, dtype, shape\]"),
        (with_entry(7, "F32", []), "printable text"),
        (with_entry("\x1b[2J", "F32", []), "printable text"),
        (with_entry("x" * 201, "F32", []), "printable text"),
        (with_entry("x", "F31", []), "unknown dtype"),
        (with_entry("x", ["F32"], []), "unknown dtype"),
        (with_entry("x", "F32", 7), "no shape"),
        (with_entry("x", "F32", [1] * 17), "no shape"),
        (with_entry("x", "F32", [-1]), "no length"),
        (with_entry("x", "F32", [True]), "no length"),
        (with_entry("x", "F32", [2.0]), "no length"),
        (with_entry("x", "F32", [1 << 62, 1 << 62]), "too large"),
        (with_entry("x", "F32", [0, 1 << 62]), "too large"),
        (with_entry("x", "F32", [3], data=bytes(11)), "needs 12 bytes; 11 are left"),
        (with_entry("x", "F32", [3], data=bytes(13)), "1 bytes are left over"),
        (packet({"tensors": [["x", "U8", [1]]] * 2, "values": 0}, b"ab"), "two tensors named 'x'"),
    ],
)
def test_other_bytes_are_refused_with_the_reason(data, message):
    with pytest.raises(MalformedPacket, match=message):
        unpack(data)


@given(st.data())
def test_a_packet_with_changed_bytes_is_read_or_refused(data):
    good = bytearray(pack({"x": torch.randn(3, 5), "flags": torch.ones(7, dtype=torch.bool)}, {"heads": 3}))
    for _ in range(data.draw(st.integers(1, 4))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    cut = good[: data.draw(st.integers(0, len(good)))] if data.draw(st.booleans()) else good
    with suppress(MalformedPacket):
        unpack(bytes(cut))

"""Headers that are refused, and those that are not."""

import json
import struct

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.gpt.checkpoint.stored_tensors import DTYPES, LONGEST_HEADER, Stored, read_header, read_json
from regard.support.files import write_safetensors


def a_file(tmp_path, header, data=b"", length=None):
    """A safetensors file of any header, whatever it says."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(raw) if length is None else length) + raw + data)
    return path


def entry(begin, end, shape=None, dtype="F32"):
    shape = [(end - begin) // 4] if shape is None else shape
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


@pytest.mark.parametrize("dtype", DTYPES.values())
def test_what_was_written_is_what_the_header_says(tmp_path, dtype):
    tensors = {
        "a": torch.zeros(2, 3, dtype=dtype),
        "b": torch.zeros(5, 0, 7, dtype=dtype),
        "c": torch.zeros((), dtype=dtype),
    }
    write_safetensors(tmp_path / "x.safetensors", tensors, {"format": "pt"})
    found = read_header(tmp_path / "x.safetensors")
    assert found == {name: Stored(t.dtype, tuple(t.shape)) for name, t in tensors.items()}


def test_a_file_without_tensors_holds_nothing(tmp_path):
    assert read_header(a_file(tmp_path, {})) == {}


HOSTILE = {
    "a header that is a list": ([], b"", r"the header must be a JSON object, but is a list; download it again"),
    "a header that is not JSON": (b"PK\x03\x04 zip", b"",
        r"the header is no JSON of the kind that belongs here: .*; download it"),
    "a header that is not UTF-8": (b'{"\xff": 1}', b"", r"the header is no JSON .*utf-8"),
    "a name twice": (
        b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}',
        b"\0" * 4,
        r"a is there twice",
    ),
    "nested a thousandfold": (b"[" * 100_000 + b"]" * 100_000, b"",
        r"the header (is nested too deeply|must be a JSON object|is no JSON)"),
    "a number of a million digits": (b'{"a": ' + b"9" * 1_000_000 + b"}", b"", r"no size has 1,000,000 digits"),
    "metadata that is no text": ({"__metadata__": {"format": 1}}, b"", r"__metadata__ must be a JSON object of texts"),
    "a tensor that is a number": ({"a": 5}, b"", r"a must have dtype, shape and data_offsets, and nothing else"),
    "a tensor without offsets": ({"a": {"dtype": "F32", "shape": [1]}}, b"",
        r"a must have dtype, shape and data_offsets"),
    "an unknown dtype": ({"a": entry(0, 4, dtype="F3")}, b"\0" * 4,
        r"a has dtype F3, which is none of F64, F32, .*; convert"),
    "a dtype that is a list": ({"a": entry(0, 4, dtype=["F32"])}, b"\0" * 4,
        r"a has dtype \['F32'\], which is none of"),
    "a negative size": ({"a": entry(0, 4, shape=[-1])}, b"\0" * 4,
        r"a has shape \[-1\], which is no list of up to 8 whole"),
    "a size of 1.5": ({"a": entry(0, 4, shape=[1.5])}, b"\0" * 4, r"a has shape \[1.5\], which is no list"),
    "a size that is true": ({"a": entry(0, 4, shape=[True])}, b"\0" * 4, r"a has shape \[True\], which is no list"),
    "a shape that is a number": ({"a": entry(0, 4, shape=4)}, b"\0" * 4, r"a has shape 4, which is no list"),
    "a hundred axes": ({"a": entry(0, 4, shape=[1] * 100)}, b"\0" * 4,
        r"a has shape \[1, 1, .*…, which is no list of up to 8"),
    "a size beyond 64 bits": ({"a": entry(0, 4, shape=[2**64])}, b"\0" * 4, r"no size has 20 digits"),
    "sizes whose product is 2^64": (
        {"a": entry(0, 0, shape=[2**32, 2**32])},
        b"",
        r"a, \(4294967296, 4294967296\) of F32, needs 73,786,976,294,838,206,464 bytes, but its place has 0; download",
    ),
    "a shape too large for its place": (
        {"a": entry(0, 8, shape=[3])},
        b"\0" * 8,
        r"a, \(3,\) of F32, needs 12 bytes, but its place has 8; download it again",
    ),
    "an end before the begin": ({"a": entry(8, 4, shape=[1])}, b"\0" * 8,
        r"a has data_offsets \[8, 4\], which must be a begin and an end"),
    "three offsets": ({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 2, 4]}}, b"\0" * 4,
        r"data_offsets \[0, 2, 4\]"),
    "offsets below 0": ({"a": entry(-4, 0, shape=[1])}, b"\0" * 4, r"a has data_offsets \[-4, 0\]"),
    "overlapping tensors": (
        {"a": entry(0, 8), "b": entry(4, 12)},
        b"\0" * 12,
        r"b begins at byte 4, inside another tensor that ends at 8; get the file from somebody you trust",
    ),
    "two tensors in one place": ({"a": entry(0, 8), "b": entry(0, 8)}, b"\0" * 8,
        r"b begins at byte 0, inside another"),
    "a hole": ({"a": entry(0, 4), "b": entry(8, 12)}, b"\0" * 12,
        r"the bytes from 4 to 8, before b, belong to no tensor"),
    "a hole at the start": ({"a": entry(4, 8)}, b"\0" * 8, r"the bytes from 0 to 4, before a, belong to no tensor"),
    "too few bytes": (
        {"a": entry(0, 12)},
        b"\0" * 11,
        r"the tensors need 12 bytes, but the file has 11 for them; "
        r"download it again: the file is shorter than its header says",
    ),
    "too many bytes": ({"a": entry(0, 12)}, b"\0" * 13,
        r"the tensors end at byte 12, but 1 more follow; download it again: .*longer"),
    "a name that paints the terminal": ({"\x1b[31mred": 5}, b"", r"\\x1b\[31mred must have dtype"),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_file_is_refused(tmp_path, what):
    header, data, message = HOSTILE[what]
    path = a_file(tmp_path, header, data)
    with pytest.raises(ValueError, match=message) as error:
        read_header(path)
    assert str(error.value).startswith(f"{path}: ")
    assert str(error.value).endswith(" Nothing was loaded.")
    assert len(str(error.value)) < len(str(path)) + 400


def test_an_empty_file_is_refused(tmp_path):
    (tmp_path / "x").write_bytes(b"")
    with pytest.raises(ValueError, match=r"x: the file is empty; download it again\. Nothing was loaded\."):
        read_header(tmp_path / "x")


def test_a_file_of_seven_bytes_is_refused(tmp_path):
    (tmp_path / "x").write_bytes(b"1234567")
    with pytest.raises(ValueError, match=r"starts with 8 bytes, and this one has 7; download it again\. Nothing"):
        read_header(tmp_path / "x")


@pytest.mark.parametrize("length", [3, 2**40, 2**64 - 1])
def test_a_header_longer_than_the_file_is_refused(tmp_path, length):
    path = a_file(tmp_path, b"{}", length=length)
    with pytest.raises(
        ValueError, match=rf"the header should have {length:,} bytes, but only 2 follow; download it again"
    ):
        read_header(path)


def test_a_header_of_gigabytes_is_refused_unread(tmp_path):
    path = tmp_path / "x"
    with path.open("wb") as file:  # sparse: it takes no place on the disk
        file.write(struct.pack("<Q", 1 << 33))
        file.truncate(8 + (1 << 33))
    with pytest.raises(
        ValueError, match=rf"the header has 8,589,934,592 bytes, more than the {LONGEST_HEADER:,} that any"
    ):
        read_header(path)


def test_whatever_a_file_is_cut_to_is_refused(tmp_path):
    path = tmp_path / "x"
    write_safetensors(path, {"a": torch.randn(3, 5), "b": torch.randn(7)})
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"Nothing was loaded\.$"):
            read_header(path)


VALID = {"a": entry(0, 60, [3, 5]), "b": entry(60, 88, [7])}


@given(place=st.integers(0, 200), byte=st.integers(0, 255))
def test_a_changed_byte_is_harmless_or_refused(tmp_path_factory, place, byte):
    path = a_file(tmp_path_factory.getbasetemp(), VALID, bytes(88))
    raw = bytearray(path.read_bytes())
    raw[place % len(raw)] = byte
    path.write_bytes(raw)
    try:
        found = read_header(path)
    except ValueError as error:
        assert str(error).endswith("Nothing was loaded.")  # noqa: PT017
    else:
        assert sum(torch.Size(t.shape).numel() * t.dtype.itemsize for t in found.values()) == 88


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is no JSON"),
        ("[1]", "the file must be a JSON object, but is a list"),
        ('{"a": 1, "a": 2}', "a is there twice"),
    ],
)
def test_json_that_is_no_object_is_refused(tmp_path, text, message):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ValueError, match=rf"config.json: .*{message}.* Nothing was loaded\."):
        read_json(tmp_path / "config.json")


def test_json_of_gigabytes_is_refused_unread(tmp_path):
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(1 << 33)
    with pytest.raises(ValueError, match=r"the file has 8,589,934,592 bytes, more than"):
        read_json(tmp_path / "config.json")

"""Checks that files of heads share."""

import json

import pytest
import torch
from safetensors.torch import load_file

from regard.heads.report.file_checks import (
    Unfit,
    Work,
    check_dtype,
    check_parts,
    check_range,
    check_sizes,
    damage_refused,
    file_named,
    plain_text,
    require,
    short_text,
    text_of_plain,
    whole_number,
)
from regard.support.tokens import TextTokens


def test_a_text_is_the_same_after_json():
    text = TextTokens(["Al", "ice", "", " 猫"], [False, True, False, False], [False, False, True, False], {3: "猫:1"})
    again = text_of_plain(json.loads(json.dumps(plain_text(text))))
    assert (again, again.labels, again.padding) == (text, text.labels, text.padding)


@pytest.mark.parametrize("fault", [{"pieces": [3]}, {"continues": ["yes"]}, {"parts": {"0": 7}}])
def test_a_text_of_other_things_is_refused(fault):
    with pytest.raises(Unfit, match="texts are not lists of tokens"):
        text_of_plain(plain_text(TextTokens(["The"])) | fault)


@pytest.mark.parametrize("value", [True, -1, 2.0, "3", None])
def test_a_size_is_a_whole_number(value):
    with pytest.raises(Unfit, match=r"T is .*, no size"):
        whole_number(value, "T")
    assert whole_number(5, "T") == 5


def test_what_does_not_fit_is_refused_with_the_reason():
    require(True, "never")
    with pytest.raises(Unfit, match="too short"):
        require(False, "too short")


def test_a_size_has_a_largest():
    assert whole_number(7, "H", most=7) == 7
    with pytest.raises(Unfit, match=r"H is 8, no size"):
        whole_number(8, "H", most=7)


@pytest.mark.parametrize("value", [None, 5, "x" * 501, "\x1b[2J", "\u202e"])
def test_a_name_is_short_and_printable(value):
    assert not short_text(value)
    assert short_text("model.layers.0.attn")


@pytest.mark.parametrize("sizes", [{"B": 1, "H": 7, "T": 10**6, "S": 1}, {"B": 10**6, "H": 7, "T": 0, "S": 0}])
def test_a_call_has_no_more_rows_than_its_file_could_hold(sizes):
    check_sizes("a", sizes, 7 * 10**6)
    with pytest.raises(Unfit, match=r"a: .*7 heads and .* tokens are more than a file of 1,000 bytes can hold"):
        check_sizes("a", sizes, 1000)


@pytest.mark.parametrize(
    ("tensor", "least", "most"),
    [
        (torch.full((3,), torch.nan), 0, 1),
        (torch.tensor([0.5, torch.nan, 1.0]), 0, 1),
        (torch.tensor([-1, 4]), -1, 4),
        (torch.zeros(0), 1, 2),
    ],
)
def test_numbers_in_range_and_nan_pass(tensor, least, most):
    check_range("x", tensor, least, most, {})


@pytest.mark.parametrize("wrong", [-0.5, 1.5, torch.inf, -torch.inf])
def test_one_number_out_of_range_is_found_anywhere(wrong):
    tensor = torch.zeros(3, 400_009)
    tensor[2, 400_007] = wrong
    with pytest.raises(Unfit, match=rf"x has {wrong}, which is not between 0 and 1"):
        check_range("x", tensor, 0, 1, {})


def test_tensors_of_a_call_have_their_types():
    check_parts("a", {"q": torch.zeros(2), "tokens": torch.tensor([-1, 5]), "real": torch.tensor([True])}, {})
    for part, tensor, message in (
        ("q", torch.tensor([1]), "a: q must be numbers, but is int64"),
        ("k", torch.ones(1).to(torch.float8_e5m2), "a: k must be numbers, but is float8_e5m2"),
        ("tokens", torch.ones(1, dtype=torch.uint64), "a: tokens must be whole numbers, but is uint64"),
        ("real", torch.tensor([1]), "a: real must be true or false, but is int64"),
        ("tokens", torch.tensor([1.0]), "a: tokens must be whole numbers, but is float32"),
        ("tokens", torch.tensor([-7]), "a: tokens has -7, which is not between -1 and"),
        ("weights", torch.tensor([2.0]), "a: weights has 2, which is not between"),
    ):
        with pytest.raises(Unfit, match=message):
            check_parts("a", {part: tensor}, {})
    check_dtype("x", torch.tensor([1], dtype=torch.uint8), "whole numbers")


@pytest.mark.parametrize("error", [KeyError("a"), OverflowError("b"), RuntimeError("c"), RecursionError("d")])
def test_a_damaged_header_is_unfit_whatever_failed(error):
    with (
        pytest.raises(Unfit, match=rf"the header does not describe a report \({type(error).__name__}: "),
        damage_refused("the header does not describe a report"),
    ):
        raise error


def test_what_is_wrong_with_a_file_names_it(tmp_path):
    path = tmp_path / "x.safetensors"
    path.write_bytes(b"\xff" * 9)
    with pytest.raises(ValueError, match=r"x\.safetensors is damaged or no safetensors file"), file_named(path):
        load_file(path)
    with pytest.raises(ValueError, match=r"x\.safetensors: too few\. Nothing was loaded"), file_named(path):
        raise Unfit("too few")


def test_a_tensor_that_is_named_often_is_read_once(monkeypatch):
    tensor, known = torch.tensor([0.25, 0.75]), {}
    check_range("x", tensor, 0, 1, known)
    monkeypatch.setattr(torch.Tensor, "flatten", None)
    check_range("y", tensor, 0.25, 0.75, known)
    with pytest.raises(Unfit, match=r"z has 0.75, which is not between 0 and 0.5"):
        check_range("z", tensor, 0, 0.5, known)


def test_what_a_file_may_make_us_compute_is_bounded_by_its_size_over_all_its_calls():
    for most, cells, message in ((2**30 + 2**13 * 7, 0, "weights"), (0, 2**24 + 8 * 7, "cells of masks")):
        work = Work(7)
        work.add("a", most, cells)
        with pytest.raises(Unfit, match=rf"b: [\d,]+ {message} are too many for a file of 7 bytes"):
            work.add("b", 1 if most else 0, 1 if cells else 0)


def test_a_token_that_is_a_book_is_refused():
    plain = plain_text(TextTokens(["a" * 10_000]))
    assert list(text_of_plain(plain)) == ["a" * 10_000]
    with pytest.raises(Unfit, match=r"a token has 10,001 characters; at most 10,000 are drawn"):
        text_of_plain({**plain, "pieces": ["a" * 10_001]})

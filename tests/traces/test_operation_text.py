"""How a call of a torch function reads."""

import math

import pytest

from regard.traces.operation_text import ATOM, PRODUCT, SUM, Term, applied, method_call, written

a, b = Term("a"), Term("b")
scores = Term("q @ k.mT", PRODUCT, summed=64)


@pytest.mark.parametrize(
    "name, arguments, text",
    [
        ("matmul", [a, b], "a @ b"),
        ("__add__", [a, b], "a + b"),
        ("__radd__", [a, 2], "2 + a"),
        ("rsub", [a, 1], "1 − a"),
        ("__rtruediv__", [a, 3], "3 / a"),
        ("__mul__", [a, 0.25], "a × 0.25"),
        ("bitwise_not", [a], "~a"),
        ("softmax", [a, -1], "softmax(a)"),
        ("cat", [[a, b], -1], "cat([a, b], -1)"),
        ("clamp", [a, None, 2.5, True], "clamp(a, 2.5)"),
        ("einsum", ["td,sd->ts", a, b], "einsum(td,sd->ts, a, b)"),
    ],
)
def test_a_call_reads_as_code_would(name, arguments, text):
    assert applied(name, arguments).text == text


@pytest.mark.parametrize(
    "name, left, right, text",
    [
        ("mul", Term("a + b", SUM), b, "(a + b) × b"),
        ("add", Term("a × b", PRODUCT), b, "a × b + b"),
        ("sub", b, Term("a − b", SUM), "b − (a − b)"),
        ("div", Term("a @ b", PRODUCT), b, "a @ b / b"),
        ("matmul", a, Term("a / b", PRODUCT), "a @ (a / b)"),
    ],
)
def test_brackets_stand_where_the_order_needs_them(name, left, right, text):
    assert applied(name, [left, right]).text == text


def test_a_looser_term_is_bracketed_before_a_method():
    assert Term("a @ b", PRODUCT).within(ATOM) == "(a @ b)"
    assert a.within(ATOM) == "a"


@pytest.mark.parametrize(
    "name, number, text",
    [
        ("div", 8.0, "q @ k.mT / √64"),
        ("mul", 64**-0.5, "q @ k.mT / √64"),
        ("div", math.sqrt(768), "q @ k.mT / √768"),
        ("div", 4.0, "q @ k.mT / 4"),  # not the root of 64, so nobody knows that it is one
        ("mul", 0.5, "q @ k.mT × 0.5"),
        ("div", 8, "q @ k.mT / 8"),
        ("div", math.inf, "q @ k.mT / ∞"),
        ("div", 0.0, "q @ k.mT / 0"),
        ("div", -8.0, "q @ k.mT / −8"),
    ],
)
def test_a_scale_is_written_as_a_root_where_it_is_one(name, number, text):
    assert applied(name, [scores, number]).text == text


def test_methods_leave_out_flags():
    assert method_call("dropout", [], {"p": 0.1, "training": True, "inplace": False}) == "dropout(p=0.1)"
    assert method_call("masked_fill_", [Term("mask"), -math.inf]) == "masked_fill(mask, −∞)"


def test_values_are_written_in_few_characters():
    assert written((48,)) == "(48,)"
    assert written(slice(1, None, 2)) == "1::2"
    assert written(Ellipsis) == "..."
    assert written([a, a, b, b, b]) == "[a, …, b]"

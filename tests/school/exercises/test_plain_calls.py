import subprocess
import sys
from types import ModuleType

import numpy as np
import pytest
import torch

from regard.school.exercises import plain_calls
from regard.school.exercises.plain_calls import MOST_VALUES, Opaque, drive, read_plain, write_plain


def there_and_back(value):
    tensors = {}
    return read_plain(write_plain(value, tensors), tensors)


@pytest.mark.parametrize(
    "value", [None, True, 3, -2.5, "text ⏎", [1, [2, ()]], (1, "a"), {"a": {1: [None]}}, float("inf"), {(1, 2): 3}]
)
def test_plain_values_come_back_as_they_were(value):
    result = there_and_back(value)
    assert result == value
    assert type(result) is type(value)


def test_tensors_come_back_wherever_they_are():
    x, mask = torch.randn(2, 3, requires_grad=True), torch.eye(3, dtype=torch.bool)
    result = there_and_back({"x": [x, (mask,)], "sparse": torch.eye(2).to_sparse()})
    torch.testing.assert_close(result["x"][0], x.detach())
    torch.testing.assert_close(result["x"][1][0], mask)
    torch.testing.assert_close(result["sparse"], torch.eye(2))


def test_arrays_are_tensors_and_their_numbers_are_numbers():
    torch.testing.assert_close(there_and_back(np.arange(3.0)), torch.arange(3, dtype=torch.float64))
    assert type(there_and_back(np.float32(2))) is float


def test_a_set_is_a_list_in_order():
    assert there_and_back([{"E", "B", "C"}, frozenset({2})]) == [["B", "C", "E"], [2]]


@pytest.mark.parametrize(
    ("value", "kind"),
    [(object(), "object"), (1 << 70, "whole number of more than 64 bits"), (torch.zeros(2, device="meta"), "tensor w")],
)
def test_other_values_come_back_as_the_name_of_their_type(value, kind):
    result = there_and_back([value])[0]
    assert isinstance(result, Opaque)
    assert result.kind.startswith(kind)
    assert result != result


def test_a_value_that_is_too_large_is_refused():
    with pytest.raises(ValueError, match="at most 20000 values"):
        write_plain([0] * MOST_VALUES, {})
    with pytest.raises(ValueError, match="200000 characters"):
        write_plain("x" * 200_001, {})
    with pytest.raises(ValueError, match="more than 1000 tensors"):
        write_plain([torch.zeros(1)] * 1001, {})
    deep = []
    for _ in range(30):
        deep = [deep]
    with pytest.raises(ValueError, match="20 deep"):
        write_plain(deep, {})


@pytest.mark.parametrize("written", [3, {}, {"value": []}, {"list": 3}, {"code": "x"}, {"value": 1, "list": []}])
def test_what_was_written_by_others_is_refused(written):
    with pytest.raises(ValueError, match="a value is"):
        read_plain(written, {})


def test_after_a_call_that_fails_there_are_no_more():
    module = ModuleType("answer")
    module.__file__ = __file__
    module.f = lambda n: 1 / n
    calls = [{"arguments": [{"value": n}], "seed": 0} for n in (2, 0, 1)]
    _, seen = drive(module, {}, {"name": "f", "calls": calls, "read": False})
    assert seen["calls"][0] == {"result": {"value": 0.5}, "after": {"list": [{"value": 2}]}}
    assert seen["calls"][1]["failed"]["type"] == "ZeroDivisionError"
    assert len(seen["calls"]) == 2


def test_it_stands_alone():
    code = (
        f"exec(open({plain_calls.__file__!r}).read(), {{'__name__': 'driver'}}); import sys; print('regard' in "
        "sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"

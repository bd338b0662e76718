"""Errors of torch and Python get a name and a meaning; the messages come from torch itself."""

import pytest
import torch
from torch import nn

from regard.school.exercises.torch_errors import TABLE, explain_error

x, y = torch.ones(5, 3), torch.ones(2, 5, 3)
FAILING = {
    "inner sizes differ": [lambda: x @ torch.ones(2, 3), lambda: y @ torch.ones(2, 2, 5)],
    "sizes do not match": [lambda: x + torch.ones(4, 3)],
    "another number of entries": [lambda: x.view(4, 4)],
    "view without contiguous": [lambda: x.T.view(15)],
    "index too large": [lambda: x[7], lambda: x[:, 3]],
    "no such axis": [lambda: x.sum(2)],
    "parts of different sizes": [lambda: torch.cat([x, torch.ones(5, 4)])],
    "different numbers of axes": [lambda: torch.cat([x, y])],
    "one number needed": [lambda: bool(x > 0), lambda: float(x), lambda: x.item()],
    "no gradient": [lambda: x.sum().backward()],
    "called too early or too late": [lambda: torch.nn.functional()],
    "no such name": [lambda: x.softmx(-1), lambda: nn.Module().W_query],
    "None instead of a value": [lambda: x + None],
    "other arguments": [lambda: (lambda a: a)(), lambda: (lambda a: a)(1, 2), lambda: (lambda a: a)(b=1)],
    "different dtypes": [lambda: x @ torch.ones(3, 2).double()],
    "a float for a whole number": [lambda: list(range(2.0))],
    "a list instead of a tensor": [lambda: [x].sum()],
    "byte out of range": [lambda: bytes([256])],
}


@pytest.mark.parametrize("name", FAILING)
def test_an_error_has_its_name_and_a_meaning(name):
    for failing in FAILING[name]:
        with pytest.raises(Exception, match=r".") as caught:
            failing()
        found, means = explain_error(f"{caught.type.__name__}: {caught.value}")
        assert found == name
        assert means.endswith((".", "?", "fit."))


def test_every_row_of_the_table_was_tried():
    assert {name for name, _, _ in TABLE} == set(FAILING)


def test_the_numbers_of_the_message_are_told():
    _, means = explain_error("RuntimeError: mat1 and mat2 shapes cannot be multiplied (10x11 and 3x11)")
    assert means == (
        "It multiplies (10, 11) by (3, 11): the 11 and the 3 must be the same number. "
        "The second one, transposed, would fit."
    )


def test_an_unknown_error_has_no_name():
    assert explain_error("ValueError: the moon is full") == ("fails", "")

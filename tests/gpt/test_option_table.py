"""A dataclass as a table of options: its rows, its checks, and the arguments of a function made of it."""

import inspect
from dataclasses import KW_ONLY, dataclass
from typing import Annotated

import pytest

from regard.gpt.option_table import (
    Option,
    at_least_one,
    check_options,
    flags_of,
    number,
    table,
    valid_seed,
    with_keywords,
)


@dataclass(frozen=True)
class Baking:
    minutes: Annotated[int, Option("How long.", at_least_one, command_default=30)]
    _: KW_ONLY
    degrees: Annotated[float | None, Option("How hot.", number(lambda d: d < 300, "below 300"), "warm")] = None
    name: Annotated[str, Option("What.", flag=None)] = "bread"

    def __post_init__(self):
        check_options(self)


@with_keywords(Baking)
def bake(oven, dough, options):
    """Bake.

    Options:
    """
    return oven, dough, options


def test_rows_are_the_fields_with_the_defaults_of_python_and_flags_have_those_of_the_command():
    assert [(spec.name, spec.type, spec.default_text) for spec in table(Baking)] == [
        ("minutes", int, "required"),
        ("degrees", float | None, "warm"),
        ("name", str, "bread"),
    ]
    assert [(spec.name, spec.default, spec.default_text) for spec in flags_of(Baking)] == [
        ("minutes", 30, "30"),
        ("degrees", None, "warm"),
    ]


def test_a_function_takes_the_options_as_arguments_and_describes_them():
    assert str(inspect.signature(bake)) == (
        "(oven, dough, minutes: int, *, degrees: float | None = None, name: str = 'bread')"
    )
    assert bake.__doc__ == (
        "Bake.\n\nOptions:\n    minutes: How long. [required]\n    degrees: How hot. [default: warm]\n"
        "    name: What. [default: bread]"
    )
    assert bake(1, 2, 3, degrees=5.0) == (1, 2, Baking(3, degrees=5.0))
    assert bake(dough=2, oven=1, minutes=3) == (1, 2, Baking(3))


def test_a_call_that_does_not_fit_names_the_function_and_a_wrong_name_before_a_missing_one():
    with pytest.raises(TypeError, match=r"^bake\(\) got an unexpected keyword argument 'minuts'$"):
        bake(1, 2, minuts=3)
    with pytest.raises(TypeError, match=r"^bake\(\) missing a required argument: 'minutes'$"):
        bake(1, 2)


def test_every_check_names_the_option():
    with pytest.raises(ValueError, match=r"^minutes \(0\) must be a whole number of at least 1"):
        Baking(0)
    with pytest.raises(ValueError, match=r"^degrees \(300.0\) must be below 300$"):
        Baking(1, degrees=300.0)
    with pytest.raises(
        ValueError, match=r"^seed \(4294967296\) must be a whole number of at least 0 and below 2³²; try 7"
    ):
        valid_seed("seed", 2**32)

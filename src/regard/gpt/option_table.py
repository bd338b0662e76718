"""Tables of options: type, default, help text and check of each, stated once in a dataclass.

A field is Annotated with its Option. `fit` and `GPT.generate` take their keyword arguments from such a table, and the
commands their flags. To add an option, add a field to its table and use it where it acts.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, fields
from functools import cache, wraps
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar, get_args, get_type_hints

from regard.support.argument_names import named

SAME: Any = object()  # the command has the default of Python
A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")


@dataclass(frozen=True)
class Option:
    """What the table says of an option beside its type and default.

    check: called with name and value, unless that is None; raises a ValueError.
    default_text: what help says of a default that is computed.
    command_default: the default of the command, where it is not that of Python; then default_text is the command's too.
    flag: how the command spells it; "" for --its-name, None for an option of Python alone.
    """

    help: str
    check: Callable[[str, Any], None] | None = None
    default_text: str = ""
    command_default: Any = SAME
    flag: str | None = ""


class Spec(NamedTuple):
    """One row of a table."""

    name: str
    type: Any
    default: Any  # MISSING where it must be given
    default_text: str  # as help shows it
    option: Option


@cache
def table(options: Any, of_command: bool = False) -> tuple[Spec, ...]:
    """The rows of a dataclass of options, with the defaults of Python or of the command, in the order of its arguments.

    >>> from regard.gpt.train.options import Recipe
    >>> next(spec for spec in table(Recipe) if spec.name == "clip").option.help
    'Clip the gradient norm to this value.'
    """
    rows, hints = [], get_type_hints(options, include_extras=True)
    for field in sorted(fields(options), key=lambda field: bool(field.kw_only)):
        kind, option = get_args(hints[field.name])
        is_same = option.command_default is SAME
        default = option.command_default if of_command and not is_same else field.default
        text = option.default_text if of_command or is_same else ""
        text = text or ("required" if default is MISSING else str(default))
        rows.append(Spec(field.name, kind, default, text, option))
    return tuple(rows)


def flags_of(*tables: Any) -> Iterator[Spec]:
    """The rows of these tables that are flags of a command, with the defaults of the command."""
    return (spec for one in tables for spec in table(one, of_command=True) if spec.option.flag is not None)


def check_options(options: Any) -> None:
    """Call the check of every option that has one."""
    kind: Any = type(options)
    for spec in table(kind):
        value = getattr(options, spec.name)
        if spec.option.check is not None and value is not None:
            spec.option.check(spec.name, value)


def with_keywords(options: Callable[P, T]) -> Callable[[Callable[[A, B, T], R]], Callable[Concatenate[A, B, P], R]]:
    """Let a function take the options of its last parameter as arguments; its signature and docstring list them."""

    def decorate(function: Callable[[A, B, T], R]) -> Callable[Concatenate[A, B, P], R]:
        own, specs = inspect.signature(function), table(options)
        *first, last = own.parameters.values()
        keywords = [inspect.signature(options).parameters[spec.name].replace(annotation=spec.type) for spec in specs]
        signature = own.replace(parameters=[*first, *keywords])

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> R:
            try:
                signature.bind_partial(*args, **kwargs)  # a wrong name is told before a missing argument
                given = signature.bind(*args, **kwargs).arguments
            except TypeError as error:
                raise TypeError(f"{function.__qualname__}() {error}") from None
            positional = [given.pop(parameter.name) for parameter in first]
            return function(*positional, **{last.name: options(**given)})  # type: ignore[call-arg]

        call.__signature__ = signature  # type: ignore[attr-defined]
        lines = "\n".join(f"    {spec.name}: {spec.option.help} [default: {spec.default_text}]" for spec in specs)
        listed = lines.replace("[default: required]", "[required]")
        call.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n{listed}"
        return call

    return decorate


def at_least_one(name: str, value: int) -> None:
    """A whole number of at least 1."""
    from regard.support.arguments import check_whole

    check_whole(**{name: value})


def number(holds: Callable[[Any], bool], rule: str) -> Callable[[str, Any], None]:
    """A number for which a condition holds; `rule` says which."""

    def check(name: str, value: Any) -> None:
        if not holds(value):
            raise ValueError(f"{named(name, value)} must be {rule}")

    return check


def valid_seed(name: str, value: int) -> None:
    """A seed: torch's generator uses 32 bits of it, so a larger one would silently equal another."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**32:
        raise ValueError(
            f"{named(name, value)} must be a whole number of at least 0 and below 2³²; try 7, or leave it out"
        )

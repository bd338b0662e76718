"""Values of an untrusted config.json, by name and type; a wrong one is refused by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType
from typing import Any, Literal, NoReturn, get_args, get_origin, get_type_hints

from regard.support.printable import readable

LARGEST = 1 << 31  # no size of a model is as large


class ConfigReader:
    """Reads a JSON object: a value of the wrong type, or a missing one, is a ValueError that names it and `where`."""

    def __init__(self, content: Mapping[str, Any], where: str) -> None:
        self.content, self.where = content, where

    def refuse(self, key: str, why: str) -> NoReturn:
        value = readable(repr(self.content[key])) if key in self.content else "missing"
        raise ValueError(f"{self.where}: {readable(key)} is {value}; {why}. Nothing was loaded.")

    def one_of(self, key: str, allowed: tuple[Any, ...], default: Any, why: str) -> Any:
        value = self.content.get(key, default)
        if not any(type(value) is type(one) and value == one for one in allowed):
            known = ", ".join(map(repr, allowed))
            self.refuse(key, f"it must be {'one of ' * (len(allowed) > 1)}{known}: {why}")
        return value

    def _read(self, key: str, default: Any, is_right: Callable[[Any], bool], rule: str) -> Any:
        value = self.content.get(key, default)
        if not is_right(value):
            self.refuse(key, f"it must be {rule}")
        return value

    def integer(self, key: str, default: int | None = None) -> int:
        rule = "a whole number of at least 1 and below 2³¹"
        return int(self._read(key, default, lambda n: type(n) is int and 1 <= n < LARGEST, rule))

    def number(self, key: str, default: float) -> float:
        return float(self._read(key, default, lambda n: type(n) in (int, float) and math.isfinite(n), "a number"))

    def flag(self, key: str, default: bool) -> bool:
        return bool(self._read(key, default, lambda value: type(value) is bool, "true or false"))

    def table(self, key: str) -> dict[str, Any]:
        return dict(self._read(key, None, lambda value: isinstance(value, dict | None), "a JSON object") or {})

    def sizes(self, names: Mapping[str, str]) -> dict[str, Any]:
        return {ours: self.integer(theirs) for theirs, ours in names.items()}

    def end(self, default: int | None, vocab_size: int) -> int | tuple[int, ...] | None:
        held = tuple(i for i in dict.fromkeys(self.ids("eos_token_id", default)) if 0 <= i < vocab_size)
        return held if len(held) > 1 else next(iter(held), None)

    def ids(self, key: str, default: int | None) -> tuple[int, ...]:
        value = self.content.get(key, default)
        ids = value if isinstance(value, list) else [] if value is None else [value]
        if not all(type(i) is int for i in ids):
            self.refuse(key, "it must be a token id, or a list of them")
        return tuple(ids)

    def dropout(self, *keys: str, default: float) -> float:
        values = {key: self.number(key, default) for key in keys}
        if len(set(values.values())) > 1:
            listed = ", ".join(f"{key} is {value}" for key, value in values.items())
            raise ValueError(
                f"{self.where}: {listed}; there is one dropout for all three here, so set them to the same value "
                "(they act in training only). Nothing was loaded."
            )
        return values[keys[0]]


def typed(kind: type, values: dict[str, Any], where: str) -> dict[str, Any]:
    """The values, checked against the types of a dataclass; an object where one of those is a dataclass is built."""
    hints, reader = get_type_hints(kind), ConfigReader(values, where)
    for name in values:
        if name not in hints:
            reader.refuse(name, "this version of regard does not know it; get a newer one")
    for field in fields(kind):
        if field.default is MISSING and field.name not in values:
            reader.refuse(field.name, "it is required")
    return {name: _typed_value(reader, name, hints[name]) for name in values}


def _typed_value(reader: ConfigReader, name: str, hint: Any) -> Any:
    value, allowed = reader.content[name], tuple(get_origin(t) or t for t in get_args(hint) or (hint,))
    if get_origin(hint) is Literal:
        return reader.one_of(name, allowed, None, "these are the values that this version of regard supports")
    if isinstance(value, dict) and (kinds := [t for t in allowed if isinstance(t, type) and is_dataclass(t)]):
        return kinds[0](**typed(kinds[0], value, f"{reader.where}: {name}"))
    if isinstance(value, list) and tuple in allowed:  # JSON has no tuples
        return reader.ids(name, None)
    if int in allowed and type(value) is int and not -LARGEST < value < LARGEST:
        reader.refuse(name, "it must be below 2³¹")
    if type(value) is int and int not in allowed and float in allowed:
        return float(value)
    if type(value) not in allowed:
        names = ["null" if t is NoneType else "a JSON object" if is_dataclass(t) else t.__name__ for t in allowed]
        reader.refuse(name, f"it must be {' or '.join(names)}")
    return value

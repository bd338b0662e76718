"""What a driver reported from somebody else's process: is it what a driver writes, and not too much of it?

A submission can write anything in its driver's place. What passes here has the types that checks rely on; whether it is
true is another matter, which is why outputs are compared with a reference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from regard.school.check.learner_code.driver import MOST_CALLS, MOST_INSIDE

MOST_PARAMETERS = 1000  # and buffers, outputs of a call, methods
MOST_NUMBERS = 1 << 24  # of all parameters together: this process makes random values for them
MOST_RECORDED = MOST_CALLS + MOST_PARAMETERS  # the last call may have several results
MOST_AXES = 16
LONGEST_NAME = 180  # characters
LONGEST_TEXT = 4000  # characters
LONGEST_FILE = 1 << 24  # lines

Rule = Callable[[Any], bool]


def check_observed(seen: Any, tensors: Mapping[str, Tensor], job: Mapping[str, Any]) -> None:
    """Raise ValueError unless this is what driver.run reports of a job."""
    if not isinstance(seen, dict):
        raise ValueError("it is no dict")
    for name in ("calls", "recorded", "dropped"):
        if name not in seen:
            raise ValueError(f"it has no {name}")
    for name, rule in RULES.items():
        if name in seen and not rule(seen[name]):
            raise ValueError(f"its {name} are not what a driver writes")
    calls = () if seen.get("failed") else job.get("calls", ())
    if len(seen["calls"]) != len(calls):
        raise ValueError(f"it tells of {len(seen['calls'])} calls; {len(calls)} were asked for")
    for call, one in zip(calls, seen["calls"], strict=True):
        given = [*call["args"], *call.get("kwargs", {}).values()]
        if set(one["after"]) != {name for name in given if isinstance(name, str)}:
            raise ValueError("it does not tell what became of the arguments")
    if not 0 <= seen.get("built", 0) <= len(seen["recorded"]):
        raise ValueError("more calls were recorded in the constructor than in all")
    numbers = sum(math.prod(one["shape"]) for one in seen.get("parameters", ()))
    if numbers > MOST_NUMBERS:
        raise ValueError(f"its parameters have {numbers} numbers; at most {MOST_NUMBERS}")
    names = [one["name"] for one in seen.get("parameters", ())]
    if len(set(names)) < len(names):
        raise ValueError("two of its parameters have one name")
    wanted = [name for one in seen["calls"] for name in (*one["outputs"], *one["after"].values())]
    wanted += [f"{kind}.{i}" for kind in ("recorded", "dropped") for i in range(len(seen[kind]))]
    if missing := [name for name in wanted if name not in tensors]:
        raise ValueError(f"{missing[0]} is missing")


def _is_text(one: Any) -> bool:
    return isinstance(one, str) and len(one) <= LONGEST_TEXT


def _is_name(one: Any) -> bool:
    """Of a parameter: it becomes the name of a tensor, which must be printable."""
    return isinstance(one, str) and 0 < len(one) <= LONGEST_NAME and one.isprintable()


def _is_number(one: Any) -> bool:
    return isinstance(one, float) or (isinstance(one, int) and abs(one) < 1 << 62)


def _is_line(one: Any) -> bool:
    return type(one) is int and 0 <= one < LONGEST_FILE


def _is_call_number(one: Any) -> bool:
    return type(one) is int and 0 <= one <= MOST_RECORDED


def _is_shape(one: Any) -> bool:
    if not isinstance(one, list) or len(one) > MOST_AXES:
        return False
    return all(type(n) is int and 0 <= n <= MOST_NUMBERS for n in one)


def _list(rule: Rule, most: int = MOST_PARAMETERS) -> Rule:
    return lambda one: isinstance(one, list) and len(one) <= most and all(map(rule, one))


def _dict(**rules: Rule) -> Rule:
    """A dict with these and perhaps other entries."""
    return lambda one: isinstance(one, dict) and all(name in one and rule(one[name]) for name, rule in rules.items())


def _names(rule: Rule) -> Rule:
    """Values by name."""
    return lambda one: (
        isinstance(one, dict) and len(one) <= MOST_PARAMETERS and all(_is_text(n) and rule(v) for n, v in one.items())
    )


def _or_none(rule: Rule) -> Rule:
    return lambda one: one is None or rule(one)


def _is_bool(one: Any) -> bool:
    return isinstance(one, bool)


def _is_failure(one: Any) -> bool:
    """Exactly these, because they become the arguments of a Failure."""
    rule = _dict(type=_is_text, message=_is_text, line=_is_line, function=_is_text)
    return rule(one) and len(one) == 4


def _is_call(one: Any) -> bool:
    rule = _dict(outputs=_list(_is_text), after=_names(_is_text))
    return rule(one) and _or_none(_is_failure)(one.get("failed"))


_ARGUMENTS = _list(_dict(name=_is_text, kind=_is_text, required=_is_bool))
_FACTS = _dict(name=_is_text, shape=_is_shape, is_mask=_is_bool)
RULES: dict[str, Rule] = {
    "calls": _list(_is_call),
    "recorded": _list(_dict(name=_is_text, line=_is_line, inputs=_list(_is_call_number)), MOST_RECORDED),
    "dropped": _list(_dict(p=_is_number, line=_is_line)),
    "built": lambda one: type(one) is int,
    "failed": _or_none(_is_failure),
    "parameters": _list(lambda one: _FACTS(one) and _is_name(one["name"]) and _is_text(one.get("owner"))),
    "buffers": _list(_FACTS),
    "loose": _list(_FACTS),
    "attributes": _names(_is_number),
    "dropouts": _list(_is_number),
    "inside": _list(_dict(path=_is_text, name=_is_text, build=_ARGUMENTS, call=_ARGUMENTS), MOST_INSIDE),
    "methods": _list(_is_text),
    "without_gradient": _list(_is_text),
    "elsewhere": _or_none(_dict(name=_is_text, line=_is_line)),
}

"""The protocol between a check and the driver that runs a learner's code: jobs, reports, and what is read from them.

A submission can write anything in its driver's place. `check_report` lets only that pass which has the types below and
keeps their limits; whether it is true is another matter, which is why outputs are compared with a reference.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, is_dataclass
from functools import cache
from types import UnionType
from typing import Annotated, Any, TypedDict, get_args, get_origin, get_type_hints, is_typeddict

from torch import Tensor

from regard.school.check.learner_code.construction import tensor_names
from regard.school.check.learner_code.driver import MOST_INSIDE, MOST_LINES
from regard.school.check.learner_code.recording import MOST_CALLS

MOST_ENTRIES = 1000  # parameters, buffers, outputs of a call, methods
MOST_NUMBERS = 1 << 24  # of all parameters together: this process makes random values for them
MOST_RECORDED = MOST_CALLS + MOST_ENTRIES  # the last call may have several results


def _is_int(one: Any, most: int) -> bool:
    return type(one) is int and 0 <= one <= most


# A type with its rule, or with the most entries that a list may have.
Text = Annotated[str, lambda one: isinstance(one, str) and len(one) <= 4000]
# Of a parameter: it becomes the name of a tensor, which must be printable.
Name = Annotated[str, lambda one: isinstance(one, str) and 0 < len(one) <= 180 and one.isprintable()]
Identifier = Annotated[str, lambda one: isinstance(one, str) and len(one) <= 200 and one.isidentifier()]
Plain = Annotated[Any, lambda one: isinstance(one, (int, float, str, type(None)))]
Number = Annotated[float, lambda one: isinstance(one, float) or (isinstance(one, int) and abs(one) < 1 << 62)]
Line = Annotated[int, lambda one: _is_int(one, 1 << 24)]
CallNumber = Annotated[int, lambda one: _is_int(one, MOST_RECORDED)]
Axis = Annotated[int, lambda one: _is_int(one, MOST_NUMBERS)]
Shape = Annotated[list[Axis], 16]


class CallJob(TypedDict, total=False):
    """One call: names of tensors, {"value": …}, or {"cache": n} for the n-th part of what the call before returned.

    A list of them is passed as a tuple, {"dict": {…}} as a dict, {"linear": name} as a function that multiplies by it;
    {"list": name} and {"shared dict": name} are empty at first and the same for all calls;
    {"object": class, "key": name, "arguments": …} is an instance of a class of the file, the same for all calls.
    """

    args: list[Any]
    kwargs: dict[str, Any]
    fresh: bool  # of a new instance; the first one is new anyway
    method: str  # of the layer; it is called itself where there is none
    state: dict[str, str]  # of a new instance: other tensors for some of its parameters


class TrialJob(TypedDict):
    """Arguments for a constructor that may be wrong, and calls that may be."""

    build: dict[str, Any] | None
    calls: list[CallJob]


class DriverJob(TypedDict, total=False):
    """What the driver is to do with a class, a function or an instance; tensors travel beside it, by name."""

    build: dict[str, Any] | None  # arguments of the constructor; none for what is built already
    inside: str  # the path of a module in it
    state: bool  # put the tensors state.NAME into the parameters
    dtype: str
    train: bool
    seeds: bool  # another seed for every call
    dropout: float  # the probability of every nn.Dropout; without it, dropout changes nothing
    drops: bool  # dropout acts as the layer was built
    calls: list[CallJob]
    first: CallJob  # for a module with lazy parameters, where there are no calls
    record: bool  # keep every torch call of the constructor and of the first call
    finite: bool  # infinities become ±1e9, so that NaN does not hide what happens
    gradients: bool  # of the output of the first call that has the shape of the tensor cotangent, times that
    devices: bool  # tell the first call that would fail on a GPU, because one of its tensors stayed on the CPU
    numpy: bool  # pass arrays
    lists: bool  # pass lists of numbers
    strided: bool  # pass tensors whose numbers do not lie in memory in their order
    trials: list[TrialJob]  # nothing but these: what can it be built and called with?


class _Argument(TypedDict):
    name: Identifier
    kind: Identifier  # of inspect.Parameter
    required: bool
    default: Plain  # None where it is something else


class ArgumentFacts(_Argument, total=False):
    """An argument of a constructor, of forward or of a function, or a field of a configuration."""

    fields: list[ArgumentFacts]  # of a configuration


class _Called(TypedDict):
    name: Identifier
    call: list[ArgumentFacts]


class Description(_Called, total=False):
    """A class or a function."""

    build: list[ArgumentFacts]  # of a class
    is_plain: bool  # a class that is no nn.Module


class SkippedFacts(TypedDict):
    """A statement of a file that failed: its line, the exception, and the class or function that it was to define."""

    line: Line
    type: Text
    message: Text
    defines: Text


class FileDescription(TypedDict):
    """What a file defines, in order, and the statements that were skipped."""

    classes: list[Description]
    functions: list[Description]
    skipped: list[SkippedFacts]


class ModuleInside(Description):
    """A module inside a module."""

    path: Text


class TensorFacts(TypedDict):
    """A buffer, or a tensor that torch does not know of."""

    name: Name
    shape: Shape
    is_mask: bool


class ParameterFacts(TensorFacts):
    """A parameter, the class of the module that holds it, and the standard deviation with which it begins."""

    owner: Text
    spread: Number


@dataclass(frozen=True)
class Failure:
    """An exception in the learner's code."""

    type: Text
    message: Text
    line: Line = 0
    function: Text = ""
    shapes: dict[Text, Shape] = field(default_factory=dict)  # of the tensors that have a name where it failed


@dataclass(frozen=True)
class Recorded:
    """A torch call inside the learner's code; its value travels as the tensor recorded.NUMBER."""

    name: Text
    line: Line
    inputs: list[CallNumber]  # the numbers of the calls that made what it works on
    equation: Text  # of einsum; "" for others
    value: Tensor


@dataclass(frozen=True)
class Dropped:
    """A call of dropout and the tensor that it acted on, dropped.NUMBER; empty for the weights of a fused kernel."""

    p: Number
    line: Line
    value: Tensor


class _CallResult(TypedDict):
    outputs: list[Text]  # names of tensors
    after: dict[Text, Text]  # the names of the arguments, and of the tensors that they are after the call


class CallReport(_CallResult, total=False):
    """What one call gave, or how it failed."""

    failed: Failure


class FaultReport(TypedDict):
    """A torch call that mixes tensors of two devices."""

    name: Text
    line: Line


class ModuleContents(TypedDict, total=False):
    """What a module holds, and what a job asked of it."""

    parameters: list[ParameterFacts]
    buffers: list[TensorFacts]
    loose: list[TensorFacts]  # tensors that are plain attributes
    attributes: dict[Text, Number]
    dropouts: list[Number]
    inside: Annotated[list[ModuleInside], MOST_INSIDE]
    methods: list[Text]
    gradients: list[Text]  # arguments and parameters (state.NAME) that a gradient reaches; they travel as gradient.NAME
    without_gradient: list[Text]  # those that it does not reach
    elsewhere: FaultReport | None


class _TrialRun(TypedDict):
    shapes: list[Shape]  # of the tensors that it returned


class TrialRun(_TrialRun, total=False):
    """What a call of a trial gave, or how it failed."""

    failed: Failure


class _Trial(TypedDict):
    runs: list[TrialRun]  # one for each call; none where it could not be built


class TrialReport(_Trial, total=False):
    """What became of one trial."""

    numbers: Axis  # in its parameters
    failed: Failure


class _Building(TypedDict, total=False):
    built: int  # how many of the recorded calls are the constructor's
    failed: Failure  # before any call: while it was built
    trials: list[TrialReport]
    ran: Annotated[list[Line], MOST_LINES]  # the lines of its file that ran


class DriverReport(ModuleContents, _Building):
    """What the driver saw."""

    calls: list[CallReport]
    recorded: Annotated[list[Recorded], MOST_RECORDED]
    dropped: list[Dropped]


@cache
def _fields(kind: Any) -> dict[str, Any]:
    """The fields of a report; tensors travel beside it."""
    return {name: one for name, one in get_type_hints(kind, include_extras=True).items() if one is not Tensor}


def fits(value: Any, kind: Any, most: int = MOST_ENTRIES) -> bool:
    """Is a value of this type, with no more than it allows?

    >>> fits({"name": "mm", "line": 3}, FaultReport), fits({"name": "mm", "line": -3}, FaultReport)
    (True, False)
    """
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return fits(value, parts[0], parts[1]) if isinstance(parts[1], int) else bool(parts[1](value))
    if origin is UnionType:
        return any(fits(value, part) for part in parts)
    if origin in (list, dict):
        return isinstance(value, origin) and len(value) <= most and _has_entries(value, parts)
    if is_typeddict(kind) or is_dataclass(kind):
        return isinstance(value, dict) and _has_fields(value, kind)
    return kind is Any or type(value) is kind


def _has_entries(value: list[Any] | dict[Any, Any], parts: tuple[Any, ...]) -> bool:
    """Are all entries of a list, or all keys and entries of a dict, of these types?"""
    if isinstance(value, list):
        return all(fits(one, parts[0]) for one in value)
    return all(fits(name, parts[0]) and fits(one, parts[1]) for name, one in value.items())


def _has_fields(value: dict[Any, Any], kind: Any) -> bool:
    """Has a report the fields of this type, and no others?"""
    known = _fields(kind)
    required = getattr(kind, "__required_keys__", known.keys())
    return required <= value.keys() <= known.keys() and all(fits(value[n], known[n]) for n in value)


def check_report(seen: Any, tensors: Mapping[str, Tensor], job: DriverJob) -> None:
    """Raise ValueError unless this is what driver.run reports of a job."""
    if not isinstance(seen, dict):
        raise ValueError("it is no dict")
    for name, kind in _fields(DriverReport).items():
        if name not in seen and name in DriverReport.__required_keys__:
            raise ValueError(f"it has no {name}")
        if name in seen and not fits(seen[name], kind):
            raise ValueError(f"its {name} are not what a driver writes")
    _check_trials(seen.get("trials", []), job.get("trials", []))
    _check_calls(seen["calls"], [] if seen.get("failed") else job.get("calls", []))
    if not 0 <= seen.get("built", 0) <= len(seen["recorded"]):
        raise ValueError("more calls were recorded in the constructor than in all")
    _check_parameters(seen.get("parameters", []))
    wanted = [name for one in seen["calls"] for name in (*one["outputs"], *one["after"].values())]
    wanted += [f"gradient.{name}" for name in seen.get("gradients", ())]
    wanted += [f"{kind}.{i}" for kind in ("recorded", "dropped") for i in range(len(seen[kind]))]
    if missing := [name for name in wanted if name not in tensors]:
        raise ValueError(f"{missing[0]} is missing")


def _check_parameters(parameters: list[ParameterFacts]) -> None:
    if (numbers := sum(math.prod(one["shape"]) for one in parameters)) > MOST_NUMBERS:
        raise ValueError(f"its parameters have {numbers} numbers; at most {MOST_NUMBERS}")
    if len({one["name"] for one in parameters}) < len(parameters):
        raise ValueError("two of its parameters have one name")


def _check_trials(seen: list[TrialReport], asked: list[TrialJob]) -> None:
    calls = [0 if "failed" in one else len(trial["calls"]) for one, trial in zip(seen, asked, strict=False)]
    if len(seen) != len(asked) or [len(one["runs"]) for one in seen] != calls:
        raise ValueError("it does not tell of every call of a trial")


def _check_calls(seen: list[CallReport], asked: list[CallJob]) -> None:
    if len(seen) != len(asked):
        raise ValueError(f"it tells of {len(seen)} calls; {len(asked)} were asked for")
    for one, call in zip(seen, asked, strict=True):
        if set(one["after"]) != {*tensor_names(call)}:
            raise ValueError("it does not tell what became of the arguments")


@dataclass
class Run:
    """One call: its tensors, or why it failed, and which of its arguments it changed."""

    outputs: list[Tensor] = field(default_factory=list)
    failed: Failure | None = None
    changed: tuple[str, ...] = ()


@dataclass
class Observation:
    """What an experiment showed."""

    contents: ModuleContents = field(default_factory=ModuleContents)
    runs: list[Run] = field(default_factory=list)
    recorded: list[Recorded] = field(default_factory=list)  # torch calls of the constructor, then of the first call
    built: int = 0  # how many of them are the constructor's
    dropped: list[Dropped] = field(default_factory=list)
    failed: Failure | None = None  # before any call: while it was built
    gradients: dict[str, Tensor] = field(default_factory=dict)  # of arguments, and of parameters: state.NAME
    trials: list[TrialReport] = field(default_factory=list)
    ran: list[int] = field(default_factory=list)  # the lines of its file that ran
    is_numpy: bool = False  # were arrays passed?

    @property
    def failure(self) -> Failure | None:
        """The first failure."""
        return self.failed or next((run.failed for run in self.runs if run.failed), None)

    @property
    def forward(self) -> list[Recorded]:
        """The torch calls of the first call."""
        return self.recorded[self.built :]

    @property
    def with_lines(self) -> list[Recorded]:
        """Those of them that stand on a line of the learner's."""
        return [call for call in self.forward if call.line]


def read_report(seen: Any, tensors: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> Observation:
    """What the driver returned; `given` are the tensors that it was given."""
    runs = [
        Run(
            [tensors[name] for name in one["outputs"]],
            Failure(**one["failed"]) if "failed" in one else None,
            tuple(name for name, after in one["after"].items() if not _unchanged(tensors[after], given[name])),
        )
        for one in seen["calls"]
    ]
    recorded = [Recorded(**one, value=tensors[f"recorded.{i}"]) for i, one in enumerate(seen["recorded"])]
    dropped = [Dropped(**one, value=tensors[f"dropped.{i}"]) for i, one in enumerate(seen["dropped"])]
    contents: Any = {name: seen[name] for name in _fields(ModuleContents) if name in seen}
    failed = Failure(**seen["failed"]) if "failed" in seen else None
    trials: Any = [_read_trial(one) for one in seen.get("trials", ())]
    gradients = {name: tensors[f"gradient.{name}"] for name in seen.get("gradients", ())}
    built, ran = seen.get("built", 0), seen.get("ran", [])
    return Observation(contents, runs, recorded, built, dropped, failed, gradients, trials, ran)


def _read_trial(trial: Any) -> Any:
    """A trial with its failures as `Failure`."""
    told = {name: Failure(**one) if name == "failed" else one for name, one in trial.items()}
    return {**told, "runs": [_read_trial(run) for run in trial["runs"]]} if "runs" in trial else told


def _unchanged(value: Tensor, original: Tensor) -> bool:
    original = original.to(value.dtype)
    return value.shape == original.shape and bool(((value == original) | (value.isnan() & original.isnan())).all())

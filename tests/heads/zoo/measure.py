"""How a watch describes a class of the zoo, against the model's own eager weights in float64.

The model's `output_attentions` is the source of the truth: no code of regard computes it. A layer of the report is
exact if its heads, its weights and every statistic agree. `marked` layers say what was assumed or is not known;
`refused` ones are not reported, and a warning names them. Whatever is neither is wrong.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

import regard
from heads import dense
from heads.made_calls import made_call
from heads.zoo.classes import Animal, Stack
from regard.heads.calls.basis import How
from regard.heads.measure.registry import NEED_TOKENS, STATISTICS

CLOSE = {"atol": 2e-4, "rtol": 1e-3}
POSITIONAL = tuple(one.name for one in STATISTICS if one.positional and one.name != "histogram")
COMPARED = tuple(one.name for one in STATISTICS if one.name not in ("lse", "histogram", "top", "map", "largest_key"))


@dataclass
class Truth:
    """One layer as the model itself describes it."""

    place: str  # the field of the model's output, and the number in it
    weights: Tensor  # (B, H, T, S), float64
    real: Tensor | None
    tokens: Tensor | None
    across: bool
    has_positions: bool

    @property
    def stack(self) -> str:
        return self.place.partition(" ")[0]


@dataclass
class Result:
    """What became of the layers of a class."""

    exact: int = 0
    marked: dict[str, int] = field(default_factory=dict)  # by what the report says of them
    refused: list[str] = field(default_factory=list)  # the warnings
    wrong: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        if self.wrong:
            return "wrong"
        return "refused" if self.refused else "marked" if self.marked else "exact"

    @property
    def reasons(self) -> list[str]:
        """What the report says of these layers, without numbers and names of modules."""
        said = [*self.refused, *self.marked] if self.refused else list(self.marked)
        clear = [
            re.sub(r"^.* is not reported: ", "", one.partition("followed by a matrix product. ")[2] or one)
            for one in said
        ]
        kinds = [re.sub(r"\([\d, ]+\)|\d[\d.]*", "…", one) for one in clear]
        return sorted({kind.replace("… – …", "…") for one in kinds for kind in one.split("; ")})


class InFloat64(TorchFunctionMode):
    """Softmaxes of float64 scores that a model asks for in float32, where small weights are 0, are in float64."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.__name__ == "softmax" and kwargs.get("dtype") is torch.float32 and args[0].dtype is torch.float64:
            kwargs = {**kwargs, "dtype": torch.float64}
        return func(*args, **kwargs)


def truths(animal: Animal, padding: bool) -> list[Truth]:
    """The layers of the eager model in float64, from its own output."""
    arguments = animal.inputs(padding)
    doubled = {name: t.double() if t.is_floating_point() else t for name, t in arguments.items()}
    model = animal.model("eager")
    if animal.double:
        model = model.double()
    else:
        doubled = arguments
    with torch.no_grad(), warnings.catch_warnings(), InFloat64():
        warnings.simplefilter("ignore")
        out = model(**doubled, output_attentions=True)
    return [truth for stack in animal.stacks for truth in _of_stack(stack, out, arguments)]


def _of_stack(stack: Stack, out: Any, arguments: dict[str, Tensor]) -> Iterator[Truth]:
    for part in stack.field.split("."):
        out = out.get(part) if hasattr(out, "get") else getattr(out, part)
    for number, weights in enumerate(out or ()):
        weights = _as_texts_and_heads(weights.softmax(-1) if stack.of_scores else weights, stack)
        ids, mask = arguments.get(stack.queries), arguments.get("attention_mask")
        pads = mask is not None and stack.queries == "input_ids"
        tokens = None if stack.across or ids is None or weights.shape[-1] != ids.shape[-1] else ids
        real = mask.bool() if pads and mask is not None and mask.shape[1] == weights.shape[-2] else None
        if stack.layout == "BnHTS" and stack.queries:  # blocks of the text, filled up at the end
            T, whole = weights.shape[-2], torch.ones_like(arguments["input_ids"]) if mask is None else mask
            real = torch.nn.functional.pad(whole.bool(), (0, -whole.shape[1] % T)).view(-1, T)
        if mask is not None and stack.with_image:
            real = torch.nn.functional.pad(mask.bool(), (0, weights.shape[-2] - mask.shape[1]), value=True)
        yield Truth(f"{stack.field} {number}", weights.double(), real, tokens, stack.across, stack.has_positions)


def _as_texts_and_heads(weights: Tensor, stack: Stack) -> Tensor:
    """(B, H, T, S)."""
    match stack.layout:
        case "BnHTS":
            return weights.flatten(0, 1)
        case "BHnTS":
            return weights.transpose(1, 2).flatten(0, 1)
        case "NTS":
            return weights.unflatten(0, (-1, stack.heads))
    return weights


def examine(animal: Animal, implementation: str, padding: bool) -> Result:
    """Watch a class, and compare."""
    expected = truths(animal, padding)
    model = animal.model(implementation)
    try:
        with (
            warnings.catch_warnings(record=True) as said,
            torch.no_grad(),
            regard.watch(model, keep=True, collect=("default", "received_mean")) as seen,
        ):
            warnings.simplefilter("always")
            model(**animal.inputs(padding))
    except ValueError as error:
        if "no attention that can be seen" not in str(error):
            raise
        missing = [truth.place for truth in expected if truth.stack not in animal.refused]
        return Result(refused=[str(error)], wrong=[f"{place} is missing" for place in missing])
    result = Result(refused=sorted({str(w.message) for w in said if "not reported" in str(w.message)}))
    layers = list(seen)
    for truth in expected:
        match = _match(truth, layers)
        if match is None:
            if not result.refused or truth.stack not in animal.refused:
                result.wrong.append(f"{truth.place} {tuple(truth.weights.shape)} is missing")
            continue
        layers.remove(match)
        _compare(truth, match, result)
    for layer in layers if not animal.partial else ():
        result.wrong.append(f"{layer.name} {layer.record.sizes} is no layer of the model")
    return result


def roles(animal: Animal, implementation: str) -> list[list[str]]:
    """The role of every head, as a watch gives it."""
    model = animal.model(implementation)
    with torch.no_grad(), regard.watch(model) as seen:
        model(**animal.inputs(animal.can_pad))
    return [[role.name for role in layer.roles] for layer in seen]


def _match(truth: Truth, layers: list[Any]) -> Any:
    """The layer of the report with these weights, in the rows that count."""
    rows = torch.ones(truth.weights.shape[:3], dtype=torch.bool)
    if truth.real is not None:
        rows = truth.real[:, None].expand(rows.shape)
    for layer in layers:
        if layer.record.sizes == tuple(truth.weights.shape):
            weights = layer.weights().double()
            if torch.allclose(weights[rows], truth.weights[rows], **CLOSE):
                return layer
    return None


def _compare(truth: Truth, layer: Any, result: Result) -> None:
    call = made_call("", weights=truth.weights, real=truth.real, tokens=truth.tokens, across=truth.across)
    expected = dense.measure(call, frozenset(COMPARED))
    positional = {*POSITIONAL, *(() if truth.has_positions or truth.across else ("sink",))}
    unknown = positional if layer.basis.positions.how is How.UNKNOWN else set()
    if not truth.has_positions and truth.weights.shape[-2] != truth.weights.shape[-1]:
        for name in positional:
            expected[name] = torch.full_like(expected["entropy"], torch.nan)
    for name, right in expected.items():
        if not layer.record.has(name):
            if not (name in NEED_TOKENS and truth.tokens is None):
                result.wrong.append(f"{layer.name}: {name} is missing")
            continue
        mine = layer.record.read(name).double()
        if name in unknown and bool(mine.isnan().all()):  # what is not known is not guessed
            continue
        if not torch.allclose(mine, right.double(), equal_nan=True, **CLOSE):
            worst = (mine - right).abs().nan_to_num(9.0).max()
            result.wrong.append(f"{truth.place} as {layer.name}: {name} differs by {worst:.3f}")
    for name in ("induction", "duplicate"):
        if name not in expected and layer.record.has(name) and not bool(layer.record.read(name).isnan().all()):
            result.wrong.append(f"{layer.name}: {name} of a text that is not its own")
    marks = _marks(layer)
    if marks:
        result.marked[marks] = result.marked.get(marks, 0) + 1
    else:
        result.exact += 1


def _marks(layer: Any) -> str:
    return "; ".join(layer.marks)

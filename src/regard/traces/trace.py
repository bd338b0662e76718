"""Trace: the named steps of one run, in order, with operation, shape, values and a reason.

The operation is the text of the torch functions that made the tensor, unless the step gives one of its own. Code that
names no steps can be traced too: torch_calls.py names its calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.layer import MultiHeadAttention
from regard.steps import collecting
from regard.support.drawing import as_figure, as_html, as_text
from regard.support.super_init import check_initialised, missing_init_explained
from regard.traces.differences import Difference, find_difference
from regard.traces.failures import describe_argument, explain_arguments
from regard.traces.torch_calls import AROUND_SOFTMAX, Step, TorchCalls, named_calls

# Why a learner should care about each step, in the words used everywhere in the project.
WHY = {
    "x": "one vector per token",
    "source": "the sequence to look at",
    "queries": "what a token looks for",
    "keys": "what a token offers",
    "values": "what it hands over",
    "split": "each head gets its share",
    **dict.fromkeys(("transpose", "transpose keys", "transpose values"), "heads side by side"),
    "scores": "every query, every key",
    "mask": "hidden keys get −∞",
    "scaled": "no longer grows with D",
    "weights": "each row sums to 1",
    "dropout": "in training only",
    "context": "values mixed by weight",
    "back": "tokens first again",
    "concat": "heads joined",
    "out": "heads mixed together",
}


class Trace:
    """The ordered, named steps of one run.

    >>> from regard.steps import step
    >>> with trace() as t:
    ...     _ = step("scores", torch.ones(2, 3), "queries @ keys.mT")
    >>> t["scores"].shape
    torch.Size([2, 3])
    >>> t.names
    ['scores']
    """

    def __init__(self, module: Callable[..., Any] | None = None) -> None:
        self.out: Any = None
        self.input: Tensor | None = None  # the first tensor that went into `trace(layer, x)`
        self.title = "" if module is None else getattr(module, "__name__", type(module).__name__)
        self._module = module if isinstance(module, nn.Module) else None
        self._named: list[Step] = []
        self._calls: list[Step] = []
        self._seen: Counter[str] = Counter()
        self._blocks: ExitStack | None = None

    def __enter__(self) -> Trace:
        recorder = TorchCalls(self._module)
        recorder.calls, self._blocks = self._calls, ExitStack()
        for block in (missing_init_explained(), recorder, collecting(partial(self._record, recorder))):
            self._blocks.enter_context(block)
        return self

    def __exit__(self, *error: Any) -> None:
        blocks, self._blocks, self._module = self._blocks, None, None  # none of them can be pickled
        assert blocks is not None
        blocks.__exit__(*error)

    def _record(self, recorder: TorchCalls, name: str, value: Tensor, operation: str, why: str) -> None:
        recorder.keep_labels_only()  # from the first named step on, the steps are those that the code names
        with recorder.paused():
            made_by = recorder.labels.name(value, name)
            operation, why = operation or made_by, why or _reason(name, operation or made_by, value)
            inputs = recorder.lineage.mark(value, len(self._named))
            self._seen[name] += 1
            unique = name if self._seen[name] == 1 else f"{name} {self._seen[name]}"
            # A copy: code that comes later may change the tensor in place.
            self._named.append(Step(unique, operation, value.detach().clone(), inputs, why))

    @property
    def steps(self) -> list[Step]:
        """The named steps; where the code named none, its tensor operations."""
        if self._named:
            return self._named
        return [
            # In code that names nothing, only the calls around the softmax are certain to be what they are called.
            replace(call, why=WHY[word]) if (word := call.name.split(" ")[0]) in AROUND_SOFTMAX else call
            for call in named_calls(self._calls)
        ]

    @property
    def has_names(self) -> bool:
        """Does the code name its steps? Else they are its tensor operations."""
        return bool(self._named)

    @property
    def names(self) -> list[str]:
        """The steps' names, in order."""
        return [s.name for s in self.steps]

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __getitem__(self, key: str | int) -> Tensor:
        return self.steps[key].value if isinstance(key, int) else self.find(key).value

    def find(self, name: str) -> Step:
        """The step of this name, with its operation and reason."""
        for s in self.steps:
            if s.name == name:
                return s
        raise KeyError(f"no step is called {name!r}; this trace has {', '.join(self.names) or 'none'}")

    def diff(self, other: Trace, rtol: float | None = None, atol: float | None = None) -> Difference | None:
        """Name the first step that differs, or None where all agree.

        >>> from regard.steps import step
        >>> with trace() as a, trace() as b:
        ...     _ = step("scores", torch.ones(2))
        >>> print(b.diff(b))
        None
        """
        if not isinstance(other, Trace):
            given = describe_argument(other)
            raise TypeError(f"diff takes another trace, but other is {given}; write t.diff(regard.trace(layer, x))")
        return find_difference(self, other, rtol, atol)

    def table(self, width: int = 80) -> str:
        """The steps as aligned text, at most `width` columns wide."""
        return as_text(self, width)

    def plot(self, ax: Any = None, text: int = 0, head: int = 0, width: float | None = None) -> Any:
        """The tensors of one text and one head as small pictures, in order; returns the matplotlib Axes.

        ax: draw into this Axes, else into a new figure that is `width` inches wide. [default: 6.9]
        """
        return as_figure(self, ax=ax, text=text, head=head, width=width)

    def __repr__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return as_html(self)


def trace(module: Any = None, *args: Any, **kwargs: Any) -> Trace:
    """See what a layer does, step by step.

    >>> layer = torch.nn.Linear(3, 2, bias=False)
    >>> trace(layer, torch.ones(4, 3)).names
    ['linear']

    `trace(layer, x)` runs the layer, or a function, once and keeps its result as `.out`. `with trace() as t:` traces
    whatever runs inside, in this thread. The table prints by itself; `t["weights"]` is a tensor; `t.diff(other)` names
    the first difference.
    """
    if error := explain_arguments(module, args, kwargs):
        raise error
    if module is None:
        return Trace()
    if isinstance(module, nn.Module):
        check_initialised(module)
    collected = Trace(module)
    x = next((one for one in (*args, *kwargs.values()) if isinstance(one, Tensor)), None)
    collected.input = None if x is None else x.detach().clone()  # a copy: the layer may change it in place
    with collected:
        collected.out = module(*args, **kwargs)
    return collected


def trace_layer(model: nn.Module, layer: int | str, *inputs: Any, **options: Any) -> Trace:
    """Run a model and trace one of its attention layers, with the input that it gets there.

    layer: a number counts the layers of type regard.MultiHeadAttention; a name is that of any submodule.
    """
    attention = _find_layer(model, layer)
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    hook = attention.register_forward_pre_hook(lambda _, args, kw: calls.append((args, kw)), with_kwargs=True)
    with torch.no_grad():
        with hook:
            model(*inputs, **options)
        if not calls:
            raise ValueError(f"layer {layer} was not called while the model ran; name one that is")
        args, kwargs = calls[0]
        return trace(attention, *args, **kwargs)


def _find_layer(model: nn.Module, layer: int | str) -> nn.Module:
    if isinstance(layer, str):
        names: dict[str, nn.Module] = dict(model.named_modules())
        if layer not in names:
            raise ValueError(f"no layer is called {layer!r}; seen.layers has the names of those with attention")
        return names[layer]
    layers: list[nn.Module] = [module for module in model.modules() if isinstance(module, MultiHeadAttention)]
    if not layers:
        raise ValueError(f"{type(model).__name__} has no regard.MultiHeadAttention to count; give the layer's name")
    if not 0 <= layer < len(layers):
        raise ValueError(f"there is no layer {layer}; this model has layers 0 to {len(layers) - 1}")
    return layers[layer]


def trace_layers(model: nn.Module, inputs: Mapping[str, Any], layers: Iterable[int]) -> dict[int, Trace]:
    """The traces of these layers of a model of regard, by their numbers; inputs: keyword arguments of its forward."""
    return {layer: trace_layer(model, layer, **inputs) for layer in layers}


def _reason(name: str, operation: str, value: Tensor) -> str:
    """Why a learner should care about this step."""
    is_split = operation.startswith(("view(", "unflatten(", "reshape(")) and ")." not in operation
    if name in ("split", "split keys", "split values") and value.dim() > 2 and is_split:
        heads, width = value.shape[-2:]
        return f"{heads} head{'s' * (heads != 1)} of {width}"
    return WHY.get(name, "")

"""A torch function mode that passes every torch function to its handler, and shows it to those who follow tensors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch._C import (
    _get_function_stack_at,
    _len_torch_function_stack,
    _pop_torch_function_stack,
    _push_on_torch_function_stack,
)
from torch.overrides import TorchFunctionMode

from regard.attention.observers import inside_observed_attention
from regard.heads.calls.call import Args, Kwargs
from regard.heads.intercept.paths import ATTENTION, HANDLERS
from regard.traces.failures import explain_call

if TYPE_CHECKING:
    from regard.heads.intercept.intercept import Interceptor

_UNCHANGED = nullcontext()


class FunctionMode(TorchFunctionMode):
    """Passes every torch function that Python calls to its handler, while the mode is on."""

    def __init__(self, interceptor: Interceptor) -> None:
        super().__init__()
        self.interceptor = interceptor
        self.is_on = False  # is it on torch's stack?
        softmaxes = interceptor.softmaxes
        self._followed = softmaxes.tracked, softmaxes.scores.alive, softmaxes.lost

    def __torch_function__(self, func: Any, types: Any, args: Args = (), kwargs: Kwargs | None = None) -> Any:
        name, kwargs = _name_of(func), kwargs or {}
        try:
            if name not in ATTENTION and self.follows_nothing:  # nearly all functions of a model that calls SDPA
                return func(*args, **kwargs)
            if self.interceptor.in_callback or inside_observed_attention():
                return func(*args, **kwargs)
            return self._run(name, func, args, kwargs)
        except RuntimeError as error:
            if clearer := explain_call(name, args, error):
                raise clearer from error
            raise

    @property
    def follows_nothing(self) -> bool:
        """Is there no tensor whose way through the model matters?"""
        tracked, scores, lost = self._followed
        return not (tracked or scores or lost or self.interceptor.pending is not None)

    @property
    def may_be_off(self) -> bool:
        """May it be switched off for a module that makes no attention?"""
        return self.is_on and self.follows_nothing and self._is_alone

    @property
    def _is_alone(self) -> bool:
        return _len_torch_function_stack() == 1 and _get_function_stack_at(0) is self

    def switch(self, on: bool) -> AbstractContextManager[None]:
        """Switch the mode on or off inside the block; it stays on under other modes, as they prevent fast paths."""
        return _UNCHANGED if on is self.is_on or not (on or self._is_alone) else self._switched(on)

    @contextmanager
    def _switched(self, on: bool) -> Iterator[None]:
        self.set(on)
        try:
            yield
        finally:
            self.set(not on)

    def set(self, on: bool) -> None:
        """Switch the mode on or off."""
        _push_on_torch_function_stack(self) if on else _pop_torch_function_stack()
        self.is_on = on

    def _run(self, name: str, func: Any, args: Args, kwargs: Kwargs) -> Any:
        handler, softmaxes = HANDLERS.get(name), self.interceptor.softmaxes
        if handler is not None:
            out = handler(self.interceptor, func, args, kwargs)
        else:
            out = func(*args, **kwargs)
            if softmaxes.lost and isinstance(out, Tensor):
                softmaxes.pass_on(name, args, kwargs)
        if softmaxes.scores.alive:
            softmaxes.scores.follow(name, args, kwargs, out)
        if self.interceptor.pending is not None:
            self.interceptor.pending.follow(name, args, kwargs, out)
        return out


@lru_cache(maxsize=4096)
def _name_of(func: Any) -> str:
    """The name of a torch function, without the overload of an aten operator."""
    name: str = getattr(func, "__name__", "")
    if name == "__get__":  # of a property, such as Tensor.mT
        name = getattr(func.__self__, "__name__", "")
    return name.partition(".")[0]

"""The attention calls of one thread: which watched module runs, which torch function it calls, and whom to report it to.

A torch function mode passes each torch function to its handler, by name. The mode is off where a module of torch.nn may
take its fast path, which it does not take under a mode.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from threading import get_ident
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack, _pop_mode, _push_mode

from regard.attention.call import Call
from regard.attention.fused import Route
from regard.attention.observers import inside_observed_attention, observe
from regard.heads import intercept_flex, intercept_sdpa, intercept_torch_nn
from regard.heads.call import WatchedCall
from regard.heads.intercept_softmax import Handler, SoftmaxTracker
from regard.heads.model_inputs import InputTracker
from regard.heads.tracked_softmax import TrackedSoftmax
from regard.traces.failures import explain_call

Callback = Callable[[int, int, WatchedCall], None]  # (forward, layer, call)
WRAPPERS = {"_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module"}  # submodule names that torch inserts
_UNCHANGED = nullcontext()


@dataclass
class Forwards:
    """How often the model was called so far, and how many attention calls it made."""

    count: int = 0
    calls: int = 0


class WatchedModel:
    """One model that is watched: which of its modules are running, and the callback."""

    def __init__(self, model: nn.Module, callback: Callback, inputs: InputTracker) -> None:
        # The modules are kept alive with their names: an id may be used again otherwise.
        self.names = {id(m): (m, _without_wrappers(name)) for name, m in model.named_modules()}
        self.callback, self.inputs = callback, inputs
        self.running: list[str] = []  # names of the modules, innermost last
        self.forwards = Forwards()
        self.layer = 0

    def enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """A module is called, in any model. Is it part of this one?"""
        known = self.names.get(id(module)) or self.names.get(id(module._modules.get("_orig_mod")))  # compiled later
        if known is None:
            return False
        self.inputs.enter(module, args, kwargs)
        if not self.running:
            self.forwards.count += 1
            self.layer = 0
        self.running.append(known[1])
        return True

    def leave(self, output: Any) -> None:
        """The innermost module is done, and returned this."""
        self.running.pop()
        self.inputs.leave(output)

    def report(self, call: WatchedCall) -> None:
        """Pass an attention call to the callback."""
        name = ".".join(part for part in (self.running[-1], call.module) if part)
        self.callback(self.forwards.count - 1, self.layer, self.inputs.annotate(call, name))
        self.layer += 1
        self.forwards.calls += 1


class Interceptor:
    """Intercepts attention in one thread, for every model that is watched in it."""

    def __init__(self) -> None:
        self.thread = get_ident()
        self.models: list[WatchedModel] = []
        self.mode = FunctionMode(self)
        self.mode_is_on = False  # is the mode on torch's stack?
        self.in_callback = False
        self.multihead: intercept_torch_nn.MultiheadShape | None = None  # inside F.multi_head_attention_forward
        self.softmaxes = SoftmaxTracker(self.on_softmax_attention)
        self.handlers: dict[str, Handler] = {  # by name of the torch function
            **self.softmaxes.handlers,
            "scaled_dot_product_attention": self.sdpa,
            "flex_attention": self.flex_attention,
            "multi_head_attention_forward": self.multi_head_attention,
        }

    @property
    def running(self) -> list[WatchedModel]:
        """The watched models that are being called."""
        return [model for model in self.models if model.running]

    def call_module(self, original: Any, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a module, with each watched model knowing that it runs."""
        is_outermost = not self.running
        if is_outermost and _in_backward():
            return original(module, *args, **kwargs)
        entered: list[WatchedModel] = []
        output = None
        try:
            entered.extend(model for model in self.models if model.enter(module, args, kwargs))
            if is_outermost and not entered:  # no part of a watched model
                return original(module, *args, **kwargs)
            with observe(self.attend) if is_outermost else _UNCHANGED, self.mode_for(module):
                output = original(module, *args, **kwargs)
                return output
        finally:
            for model in entered:
                model.leave(output)
            if is_outermost:
                self.softmaxes.forget()

    def mode_for(self, module: nn.Module) -> AbstractContextManager[None]:
        """The function mode as this module needs it: a mode on torch's stack would keep it off its fast path."""
        return self.switch_mode(on=not intercept_torch_nn.may_take_fast_path(module))

    def switch_mode(self, on: bool) -> AbstractContextManager[None]:
        """Switch the function mode on or off. It stays on under other modes: these prevent fast paths anyway."""
        if on is self.mode_is_on or (not on and _get_current_function_mode_stack() != [self.mode]):
            return _UNCHANGED
        return self._switched_mode(on)

    @contextmanager
    def _switched_mode(self, on: bool) -> Iterator[None]:
        self._set_mode(on)
        try:
            yield
        finally:
            self._set_mode(not on)

    def _set_mode(self, on: bool) -> None:
        _push_mode(self.mode) if on else _pop_mode()
        self.mode_is_on = on

    def report(self, call: WatchedCall) -> None:
        """Pass a call to the running models. What their callbacks compute is not the model's, nor in its precision."""
        _, _, T, S = call.sizes
        extra = self.multihead.extra_keys if self.multihead is not None else 0
        if extra and extra == S - T:
            call = replace(call, extra=extra)
        before, self.in_callback = self.in_callback, True
        try:
            with torch.no_grad(), _without_autocast(call.device.type):
                for model in self.running:
                    model.report(call)
        finally:
            self.in_callback = before

    def sdpa(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """scaled_dot_product_attention."""
        out, lse = intercept_sdpa.run_with_lse(function, args, kwargs)
        query = args[0] if args else kwargs["query"]
        with self.errors_naming_the_module():
            batch = self._batch_size(query.shape[-2]) if query.dim() == 3 else None
            call = intercept_sdpa.call_of(args, kwargs, lse, batch)
        self.report(call)
        return out

    def flex_attention(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The operator that FlexAttention calls."""
        out = function(*args, **kwargs)
        with self.errors_naming_the_module(), torch.no_grad():
            call = intercept_flex.call_of(args, kwargs)
        self.report(call)
        return out

    def multi_head_attention(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """F.multi_head_attention_forward: the functions that it calls are intercepted one by one."""
        shape, self.multihead = self.multihead, intercept_torch_nn.shape_of(args, kwargs)
        was_on, self.mode_is_on = self.mode_is_on, False  # torch takes a mode off while it handles a function
        try:
            with self.switch_mode(on=True):
                return intercept_torch_nn.without_dispatch(function)(*args, **kwargs)
        finally:
            self.multihead, self.mode_is_on = shape, was_on

    def on_softmax_attention(self, softmax: TrackedSoftmax) -> None:
        """A softmax was multiplied with values."""
        if softmax.unknown:
            warnings.warn(f"the attention in {self._module_name()} is not reported: {softmax.unknown}", stacklevel=2)
            return
        if softmax.heads is None and self.multihead is not None:
            softmax.heads = (self.multihead.batch, self.multihead.heads)
        self.report(softmax.call(self._batch_size(softmax.weights.shape[-2])))

    def attend(self, call: Call, route: Route) -> None:
        """regard's own attend(), which calls this as its observer."""
        if inside_observed_attention():
            return  # part of another attention call
        q, k, _ = call.qkv
        slopes = None if call.alibi is None else call.alibi.detach()
        self.report(WatchedCall("", q=q.detach(), k=k.detach(), scale=call.scale, mask=call.mask, alibi=slopes))

    @contextmanager
    def errors_naming_the_module(self) -> Iterator[None]:
        """Say in which module an attention call could not be read."""
        try:
            yield
        except (ValueError, RuntimeError, TypeError, IndexError) as error:
            raise ValueError(f"cannot follow the attention in {self._module_name()}: {error}") from error

    def _module_name(self) -> str:
        return self.running[0].running[-1] or "the model itself"

    def _batch_size(self, T: int) -> int | None:
        return self.multihead.batch if self.multihead is not None else self.running[0].inputs.batch_size(T)


class FunctionMode(TorchFunctionMode):
    """Passes every torch function that Python calls to its handler, while the mode is on."""

    def __init__(self, interceptor: Interceptor) -> None:
        super().__init__()
        self.interceptor = interceptor

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "__get__":  # of a property, such as Tensor.mT
            name = getattr(func.__self__, "__name__", "")
        handler = self.interceptor.handlers.get(name.partition(".")[0])  # without the overload of an aten operator
        try:
            if handler is None or self.interceptor.in_callback or inside_observed_attention():
                return func(*args, **kwargs)
            return handler(func, args, kwargs)
        except RuntimeError as error:
            if clearer := explain_call(name, args, error):
                raise clearer from error
            raise


def _in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1


def _without_autocast(device_type: str) -> AbstractContextManager[Any]:
    return torch.autocast(device_type, enabled=False) if torch.is_autocast_enabled(device_type) else nullcontext()


def _without_wrappers(name: str) -> str:
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)

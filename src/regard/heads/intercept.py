"""Intercept every attention call of a model while it runs, without changing the model or what it computes.

Three mechanisms, active only in the thread that watches: a torch function mode sees scaled_dot_product_attention,
FlexAttention and softmax followed by a product; a replaced nn.Module.__call__ knows which module runs and switches the
mode off where torch.nn may take its fast path; regard's attend() calls an observer. Compiled models run eagerly
meanwhile, in every thread. What runs in backward, such as the recomputation of a checkpoint, is not a forward.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack, _pop_mode, _push_mode

from regard.attention.masks import Mask
from regard.attention.observers import busy, observe
from regard.heads import intercept_flex, intercept_sdpa, intercept_torch_nn
from regard.heads.call import WatchedCall
from regard.heads.intercept_softmax import Handler, SoftmaxTracker
from regard.heads.model_inputs import InputTracker
from regard.heads.torch_patches import Patch, Patches
from regard.heads.tracked_softmax import TrackedSoftmax

Callback = Callable[[int, int, WatchedCall], None]  # (forward, layer, call)
INTERCEPTED = (
    "scaled_dot_product_attention, torch.nn.MultiheadAttention, FlexAttention, regard's own attention, "
    "and softmax over the last axis of a (…, T, S) tensor followed by a matrix product"
)
WRAPPERS = {"_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module"}  # submodule names that torch inserts
# Modules without submodules that make no attention. They are half of all calls, and need no bookkeeping.
LEAVES = {
    *(nn.Linear, nn.LayerNorm, nn.RMSNorm, nn.Dropout, nn.Embedding, nn.Identity),
    *(nn.GELU, nn.ReLU, nn.SiLU, nn.Tanh),
}


@dataclass
class Forwards:
    """How often the model was called so far, and how many attention calls it made."""

    count: int = 0
    calls: int = 0


@contextmanager
def intercept(
    model: nn.Module, callback: Callback, *, tokens: Tensor | None = None, padding: Tensor | None = None
) -> Iterator[Forwards]:
    """Call `callback(forward, layer, call)` right after each attention call that the model makes inside the block.

    `forward` counts calls of the model, or of a part of it that is called by itself; `layer` counts attention calls
    within one. tokens: (B, T) ids, where the model's own arguments do not contain them. padding: (B, T), True = a real
    token.
    """
    _refuse_torchscript(model)
    watched = WatchedModel(model, callback, InputTracker(tokens, padding))
    interceptor = _interceptor_of_this_thread()
    with _patches.applied():
        interceptor.models.append(watched)
        try:
            yield watched.forwards
        finally:
            interceptor.models.remove(watched)
    if not watched.forwards.count:
        raise ValueError("the model was not called inside the block; call it there, in the same thread")
    if not watched.forwards.calls:
        raise ValueError(
            f"{type(model).__name__} made no attention that can be seen; looked for {INTERCEPTED}. "
            "Attention that is written otherwise is seen once it calls one of these"
        )
    watched.inputs.check_used()


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

    def leave(self) -> None:
        """The innermost module is done."""
        self.running.pop()
        self.inputs.leave()

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
        try:
            entered.extend(model for model in self.models if model.enter(module, args, kwargs))
            if not is_outermost:
                with self.mode_for(module):
                    return original(module, *args, **kwargs)
            if not entered:
                return original(module, *args, **kwargs)
            with observe(self.attend), self.mode_for(module):
                return original(module, *args, **kwargs)
        finally:
            for model in entered:
                model.leave()
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
                return intercept_torch_nn.without_dispatch(_patches.original(function))(*args, **kwargs)
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

    def attend(
        self,
        path: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        dropout: float,
        mask: Mask,
        scale: float | None,
        alibi: Tensor | None,
    ) -> None:
        """regard's own attend(), which calls this as its observer."""
        if busy():
            return  # part of another attention call
        scale = q.shape[-1] ** -0.5 if scale is None else scale
        slopes = None if alibi is None else alibi.detach()
        self.report(WatchedCall("", q.detach(), k.detach(), scale, mask, alibi=slopes))

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
        if handler is None or self.interceptor.in_callback or busy():
            return func(*args, **kwargs)
        return handler(func, args, kwargs)


_UNCHANGED = nullcontext()
_interceptor: ContextVar[Interceptor | None] = ContextVar("regard_interceptor", default=None)


def _existing_interceptor() -> Interceptor | None:
    interceptor = _interceptor.get()
    # A context can be copied into another thread, as asyncio.to_thread does; that thread is not watched.
    return interceptor if interceptor is not None and interceptor.thread == get_ident() else None


def _interceptor_of_this_thread() -> Interceptor:
    interceptor = _existing_interceptor()
    if interceptor is None:
        interceptor = Interceptor()
        _interceptor.set(interceptor)
    return interceptor


def _active_interceptor() -> Interceptor | None:
    """The interceptor of this thread while a watched model runs, but not while it runs a callback."""
    interceptor = _existing_interceptor()
    return interceptor if interceptor is not None and not interceptor.in_callback and interceptor.running else None


def _intercepting_call(original: Any) -> Any:
    def __call__(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        interceptor = _existing_interceptor()
        if interceptor is None or not interceptor.models or interceptor.in_callback:
            return original(self, *args, **kwargs)
        if type(self) in LEAVES and interceptor.running:
            return original(self, *args, **kwargs)
        return interceptor.call_module(original, self, args, kwargs)

    return __call__


def _with_mode_on(original: Any) -> Any:
    def multi_head_attention_forward(*args: Any, **kwargs: Any) -> Any:
        interceptor = _active_interceptor()
        if interceptor is None:
            return original(*args, **kwargs)
        with interceptor.switch_mode(on=True):  # the fast path was not taken
            return original(*args, **kwargs)

    return multi_head_attention_forward


def _reporting(call_of: Callable[..., WatchedCall], original: Any) -> Any:
    def operator(*args: Any, **kwargs: Any) -> Any:
        out = original(*args, **kwargs)
        interceptor = _active_interceptor()
        if interceptor is not None:
            with interceptor.errors_naming_the_module(), torch.no_grad():
                call = call_of(*args, **kwargs)
            interceptor.report(call)
        return out

    return operator


_patches = Patches(
    [
        Patch(nn.Module, "__call__", _intercepting_call),
        Patch(torch.nn.functional, "multi_head_attention_forward", _with_mode_on),
        *(Patch(torch, name, partial(_reporting, call)) for name, call in intercept_torch_nn.OPERATORS.items()),
    ]
)


def _in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1


def _without_autocast(device_type: str) -> AbstractContextManager[Any]:
    return torch.autocast(device_type, enabled=False) if torch.is_autocast_enabled(device_type) else nullcontext()


def _refuse_torchscript(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise ValueError(
                f"{name or 'the model'} is TorchScript, which cannot be looked into; watch the module it was made from"
            )


def _without_wrappers(name: str) -> str:
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)

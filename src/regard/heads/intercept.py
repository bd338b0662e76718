"""Seeing every attention of a model while it runs, without changing it or what it computes.

Three places are looked at, in the thread that watches and only while the model runs: a torch function mode sees
scaled_dot_product_attention, FlexAttention and softmax followed by a product; nn.Module.__call__ is replaced for the
time being, to know which module runs and to let torch.nn's fast path be taken; attend() says itself what it does.
Compiled models run as if they were not compiled, in every thread. What runs in backward (a checkpoint's second
forward) is not a forward.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack, _pop_mode, _push_mode

from regard.attention.call import Call
from regard.attention.fused import Route
from regard.attention.observers import inside_observed_attention, observe
from regard.heads import intercept_flex as flex
from regard.heads import intercept_sdpa as fused
from regard.heads import intercept_softmax as written_out
from regard.heads import intercept_torch_nn as fast_path
from regard.heads.call import WatchedCall
from regard.heads.model_inputs import Texts

Tell = Callable[[int, int, WatchedCall], None]
LOOKED_FOR = (
    "scaled_dot_product_attention, torch.nn.MultiheadAttention, FlexAttention, regard's own attention, "
    "and softmax over the last axis of a (…, T, S) tensor followed by a matrix product"
)
WRAPPERS = {"_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module"}  # names that torch puts in between
ROLES = {
    **written_out.ROLES,
    "scaled_dot_product_attention": "fused",
    "flex_attention": "flex",
    "multi_head_attention_forward": "opened",
}


@dataclass
class Forwards:
    """How often the model was called so far, and how many attentions it made."""

    count: int = 0
    calls: int = 0


@contextmanager
def intercept(
    model: nn.Module, tell: Tell, *, tokens: Tensor | None = None, padding: Tensor | None = None
) -> Iterator[Forwards]:
    """WatchedCall `tell(forward, layer, call)` right after each attention that the model makes inside the block.

    `forward` counts calls of the model, or of a part of it that is called by itself; `layer` counts attentions within
    one. tokens: (B, T) ids, where the model's own arguments do not give them. padding: (B, T), True = a real token.
    """
    _refuse_scripts(model)
    listener = _Listener(model, tell, Texts(tokens, padding))
    eye = _eye_here()
    with _looking():
        eye.listeners.append(listener)
        try:
            yield listener.forwards
        finally:
            eye.listeners.remove(listener)
    if not listener.forwards.count:
        raise ValueError("the model was not called inside the block; call it there, in the same thread")
    if not listener.forwards.calls:
        raise ValueError(
            f"{type(model).__name__} made no attention that can be seen; looked for {LOOKED_FOR}. "
            "Attention that is written otherwise is seen once it calls one of these"
        )
    listener.texts.check_used()


class _Listener:
    """One watched model: where in it we are, and whom to tell."""

    def __init__(self, model: nn.Module, tell: Tell, texts: Texts) -> None:
        self.names = {id(m): (m, _plain(name)) for name, m in model.named_modules()}
        self.tell, self.texts = tell, texts
        self.inside: list[str] = []
        self.forwards = Forwards()
        self.layer = 0

    def enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        found = self.names.get(id(module))
        if found is None:  # the model's compiled double may be called in its place
            found = self.names.get(id(module._modules.get("_orig_mod")))
            if found is None:
                return False
        self.texts.enter(module, args, kwargs)
        if not self.inside:
            self.forwards.count += 1
            self.layer = 0
        self.inside.append(found[1])
        return True

    def leave(self) -> None:
        self.inside.pop()
        self.texts.leave()

    def hear(self, call: WatchedCall) -> None:
        name = ".".join(part for part in (self.inside[-1], call.module) if part)
        self.tell(self.forwards.count - 1, self.layer, self.texts.fit(call, name))
        self.layer += 1
        self.forwards.calls += 1


class _Eye:
    """What one thread sees, for all models that are watched in it."""

    def __init__(self) -> None:
        self.listeners: list[_Listener] = []
        self.mode = _Mode(self)
        self.on = False  # is the mode on torch's stack?
        self.telling = False
        self.heads: tuple[int, int] | None = None  # (B, H), inside F.multi_head_attention_forward
        self.extra = 0  # keys that it puts after its own
        self.trail = written_out.Trail(self.found)

    @property
    def running(self) -> list[_Listener]:
        return [listener for listener in self.listeners if listener.inside]

    def run(self, original: Any, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a module, having noted where we are."""
        before = bool(self.running)
        if not before and torch._C._current_graph_task_id() != -1:  # a checkpoint runs again in backward
            return original(module, *args, **kwargs)
        entered: list[_Listener] = []
        try:
            entered.extend(listener for listener in self.listeners if listener.enter(module, args, kwargs))
            if not before and not entered:
                return original(module, *args, **kwargs)
            if not before:
                with observe(self.ours), self.looking(not fast_path.goes_fast(module)):
                    return original(module, *args, **kwargs)
            look = not fast_path.goes_fast(module)
            if look is self.on:
                return original(module, *args, **kwargs)
            with self.looking(look):
                return original(module, *args, **kwargs)
        finally:
            for listener in entered:
                listener.leave()
            if not before:
                self.trail.forget()

    @contextmanager
    def looking(self, look: bool) -> Iterator[None]:
        """The mode on torch's stack, or off it where it is the only one: others keep fast paths off anyway."""
        if look is self.on or (not look and _get_current_function_mode_stack() != [self.mode]):
            yield
            return
        _push_mode(self.mode) if look else _pop_mode()
        self.on = look
        try:
            yield
        finally:
            _pop_mode() if look else _push_mode(self.mode)
            self.on = not look

    def heard(self, call: WatchedCall) -> None:
        """Tell of a call. What the listeners compute is not the model's, and not in its precision."""
        _, _, T, S = call.sizes
        if self.extra and self.extra == S - T:
            call = replace(call, extra=self.extra)
        self.telling, before = True, self.telling
        try:
            with torch.no_grad(), _full_precision(call.device.type):
                for listener in self.running:
                    listener.hear(call)
        finally:
            self.telling = before

    def fused(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        out, lse = fused.run(function, args, kwargs)
        query = args[0] if args else kwargs["query"]
        with self._named():
            batch = self._batch(query.shape[-2]) if query.dim() == 3 else None
            call = fused.call_of(args, kwargs, lse, batch)
        self.heard(call)
        return out

    def flex(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        out = function(*args, **kwargs)
        with self._named(), torch.no_grad():
            call = flex.call_of(args, kwargs)
        self.heard(call)
        return out

    def opened(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """F.multi_head_attention_forward, looked into."""
        before, self.heads, self.extra = self.heads, fast_path.heads_of(args, kwargs), fast_path.extra_of(args, kwargs)
        on, self.on = self.on, False  # torch has taken the mode off while it handles a function
        try:
            with self.looking(True):
                return fast_path.opened(_replaced.get(function, function))(*args, **kwargs)
        finally:
            self.heads, self.extra, self.on = before, 0, on

    def found(self, written: written_out.Written) -> None:
        """A softmax turned out to be attention."""
        if written.lost:
            where = self.running[0].inside[-1] or "the model itself"
            warnings.warn(f"the attention in {where} is not reported: {written.lost}", stacklevel=2)
            return
        written.heads = written.heads or self.heads
        self.heard(written_out.call_of(written, self._batch(written.weights.shape[-2])))

    def ours(self, call: Call, route: Route) -> None:
        """regard's attend() says what it is about to do."""
        if inside_observed_attention():
            return  # part of another attention
        q, k, _ = call.qkv
        slopes = None if call.alibi is None else call.alibi.detach()
        self.heard(WatchedCall("", q=q.detach(), k=k.detach(), scale=call.scale, mask=call.mask, alibi=slopes))

    def _batch(self, T: int) -> int | None:
        return self.heads[0] if self.heads else self.running[0].texts.batch(T)

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Errors name the module."""
        try:
            yield
        except (ValueError, RuntimeError, TypeError, IndexError) as error:
            where = self.running[0].inside[-1] or "the model itself"
            raise ValueError(f"cannot follow the attention in {where}: {error}") from error


class _Mode(TorchFunctionMode):
    """Sees every torch function that Python calls, while it is on."""

    def __init__(self, eye: _Eye) -> None:
        super().__init__()
        self.eye = eye

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        role = ROLES.get((getattr(func.__self__, "__name__", "") if name == "__get__" else name).partition(".")[0])
        eye = self.eye
        if role is None or eye.telling or inside_observed_attention():
            return func(*args, **kwargs)
        if role in ("fused", "flex", "opened"):
            return getattr(eye, role)(func, args, kwargs)
        return getattr(eye.trail, role)(func, args, kwargs)


# Modules of torch that attend to nothing and hold nothing: half of all calls, which need no noting.
PLAIN = {nn.Linear, nn.LayerNorm, nn.RMSNorm, nn.Dropout, nn.Embedding, nn.Identity, nn.GELU, nn.ReLU, nn.SiLU, nn.Tanh}

_threads = threading.local()
_lock = threading.Lock()
_open = 0  # blocks that are open, in all threads
_patches = ExitStack()
_replaced: dict[Any, Any] = {}  # what stands behind our functions


def _eye_here() -> _Eye:
    if not hasattr(_threads, "eye"):
        _threads.eye = _Eye()
    eye: _Eye = _threads.eye
    return eye


@contextmanager
def _looking() -> Iterator[None]:
    """Put our functions in torch's places while any block is open."""
    global _open
    with _lock:
        if not _open:
            _patch()
        _open += 1
    try:
        yield
    finally:
        with _lock:
            _open -= 1
            if not _open:
                _patches.close()


def _patch() -> None:
    # What is compiled runs by its Python code meanwhile, where we can see it.
    if "torch._dynamo" in sys.modules or "torch.nn.attention.flex_attention" in sys.modules:
        _patches.enter_context(torch.compiler.set_stance("force_eager"))
    _replace(nn.Module, "__call__", _module)
    _replace(torch.nn.functional, "multi_head_attention_forward", _attention)
    for name, call_of in fast_path.OPERATORS.items():
        _replace(torch, name, partial(_operator, call_of))


def _replace(owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
    original = getattr(owner, name)
    ours = wrap(original)
    _replaced[ours] = original
    _patches.callback(_replaced.pop, ours)
    _patches.callback(setattr, owner, name, original)
    setattr(owner, name, ours)


def _module(original: Any) -> Any:
    def __call__(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        eye: _Eye | None = getattr(_threads, "eye", None)
        if eye is None or not eye.listeners or eye.telling or (type(self) in PLAIN and eye.running):
            return original(self, *args, **kwargs)
        return eye.run(original, self, args, kwargs)

    return __call__


def _attention(original: Any) -> Any:
    def multi_head_attention_forward(*args: Any, **kwargs: Any) -> Any:
        eye: _Eye | None = getattr(_threads, "eye", None)
        if eye is None or eye.telling or not eye.running:
            return original(*args, **kwargs)
        with eye.looking(True):
            return original(*args, **kwargs)

    return multi_head_attention_forward


def _operator(call_of: Callable[..., WatchedCall], original: Any) -> Any:
    def operator(*args: Any, **kwargs: Any) -> Any:
        out = original(*args, **kwargs)
        eye: _Eye | None = getattr(_threads, "eye", None)
        if eye is not None and not eye.telling and eye.running:
            with eye._named(), torch.no_grad():
                call = call_of(*args, **kwargs)
            eye.heard(call)
        return out

    return operator


def _full_precision(kind: str) -> AbstractContextManager[Any]:
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()


def _refuse_scripts(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise ValueError(
                f"{name or 'the model'} is TorchScript, which cannot be looked into; watch the module it was made from"
            )


def _plain(name: str) -> str:
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)

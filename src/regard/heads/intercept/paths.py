"""The registry of interception paths: each is a file of this folder that registers itself here when it is imported.

A path handles torch functions, which a torch function mode passes to it by name; or it replaces attributes of torch
while a model is watched, or wraps its forward. Replacements are there in all threads, so each decides by itself whether
its thread is watching. Compiled code runs eagerly meanwhile: a compiled graph makes no calls that could be intercepted.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.utils.checkpoint
from torch import Tensor
from torch.overrides import TorchFunctionMode

from regard.attention.observers import inside_observed_attention
from regard.heads.calls.call import Args, Kwargs, has_values
from regard.support.scoped import Scoped
from regard.traces.failures import explain_call

if TYPE_CHECKING:
    from regard.heads.intercept.interceptor import Interceptor

COMPILER = "torch._dynamo"
NO_VALUES = "its tensors hold no numbers: they are on the meta device, or FakeTensors"
_UNCHANGED = nullcontext()

# (interceptor, function, args, kwargs) → what the function returns
Handler = Callable[["Interceptor", Any, Args, Kwargs], Any]


class Patch(NamedTuple):
    """`owner.name` becomes `wrap(owner.name)`."""

    owner: Any
    name: str
    wrap: Callable[[Any], Any]


HANDLERS: dict[str, Handler] = {}  # by name of the torch function
ATTENTION: set[str] = set()  # functions that matter also where no tensor is followed: attention, and its beginnings
PATCHES: list[Patch] = []  # attributes of torch that are replaced while a model is watched
AROUND_FORWARD: list[Callable[[Interceptor], AbstractContextManager[Any]]] = []  # blocks that a watched forward runs in

current_interceptor = Scoped["Interceptor"]("regard_interceptor")


def handles(*names: str, is_attention: bool = True) -> Callable[[Handler], Handler]:
    """Let a function handle these torch functions of a watched model; is_attention: also if no tensor is followed."""

    def register(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(names, handler))
        ATTENTION.update(names if is_attention else ())
        return handler

    return register


def active_interceptor() -> Interceptor | None:
    """The interceptor of this thread while a watched model runs, but not while it runs a callback."""
    interceptor = current_interceptor.get()
    return interceptor if interceptor is not None and not interceptor.in_callback and interceptor.running else None


class FunctionMode(TorchFunctionMode):
    """Passes every torch function that Python calls to its handler, while the mode is on."""

    def __init__(self, interceptor: Interceptor) -> None:
        super().__init__()
        self.interceptor = interceptor
        self.is_on = False  # is it on torch's stack?
        softmaxes = interceptor.softmaxes
        self._followed = softmaxes.tracked, softmaxes.scores.alive, softmaxes.lost, interceptor.weight_uses.derived

    def __torch_function__(self, func: Any, types: Any, args: Args = (), kwargs: Kwargs | None = None) -> Any:
        name, kwargs = _name_of(func), kwargs or {}
        try:
            own = self.interceptor
            if name in own.new_moves:
                own.notice_move(name, args)
            origins = own.origins
            if origins is None and name not in ATTENTION and self.follows_nothing:
                out = func(*args, **kwargs)  # nearly all functions of a model that calls SDPA
                if own.records and not own.in_callback:
                    own.lineage.record(name, func, args, kwargs, out)
                return out
            if own.in_callback:
                return func(*args, **kwargs)
            is_part = inside_observed_attention()
            if origins is None:
                return func(*args, **kwargs) if is_part else self._run(name, func, args, kwargs)
            if name in ATTENTION and not is_part:
                origins.prepare(name, args, kwargs)
            out = func(*args, **kwargs) if is_part else self._run(name, func, args, kwargs)
            origins.follow(name, func, args, kwargs, out)
            return out
        except RuntimeError as error:
            if clearer := explain_call(name, args, error):
                raise clearer from error
            raise

    @property
    def follows_nothing(self) -> bool:
        """Is there no tensor whose way through the model matters?"""
        (tracked, scores, lost, derived), inside = self._followed, self.interceptor
        return not (tracked or scores or lost or derived or inside.pending is not None or inside.linear_paths.is_on)

    @property
    def may_be_off(self) -> bool:
        """May it be switched off for a module that makes no attention?"""
        return self.is_on and self.follows_nothing and self._is_alone

    @property
    def _is_alone(self) -> bool:
        return torch._C._len_torch_function_stack() == 1 and torch._C._get_function_stack_at(0) is self

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
        torch._C._push_on_torch_function_stack(self) if on else torch._C._pop_torch_function_stack()
        self.is_on = on

    def _run(self, name: str, func: Any, args: Args, kwargs: Kwargs) -> Any:
        handler, softmaxes, uses = HANDLERS.get(name), self.interceptor.softmaxes, self.interceptor.weight_uses
        if uses.products:
            uses.check(name, args, kwargs)
        if handler is not None and not _have_values(args, kwargs):
            if "softmax" in name or "attention" in name:
                self.interceptor.refuse(NO_VALUES)
            return func(*args, **kwargs)
        if handler is not None:
            out = handler(self.interceptor, func, args, kwargs)
        else:
            out = func(*args, **kwargs)
            if softmaxes.lost and isinstance(out, Tensor):
                softmaxes.pass_on(name, args, kwargs)
        if softmaxes.tracked or uses.derived:
            softmaxes.written(name, args, kwargs)
            uses.follow(name, args, kwargs, out)
        if (linear := self.interceptor.linear_paths).is_on:
            linear.follow(name, func, args, kwargs, out)
        if self.interceptor.records:
            self.interceptor.lineage.record(name, func, args, kwargs, out)
        if softmaxes.scores.alive:
            softmaxes.scores.follow(name, args, kwargs, out)
        if self.interceptor.pending is not None:
            self.interceptor.pending.follow(name, args, kwargs, out)
        return out


def _have_values(args: Args, kwargs: Kwargs) -> bool:
    """Does the first tensor of these arguments hold numbers? True where there is none."""
    return next((has_values(value) for value in (*args, *kwargs.values()) if isinstance(value, Tensor)), True)


@lru_cache(maxsize=4096)
def _name_of(func: Any) -> str:
    """The name of a torch function, without the overload of an aten operator."""
    name: str = getattr(func, "__name__", "")
    if name == "__get__":  # of a property, such as Tensor.mT
        name = getattr(func.__self__, "__name__", "")
    return name.partition(".")[0]


class OwnComputation:
    """What is computed inside the block is not the model's, nor in its precision.

    A class, as a generator with @contextmanager takes three times as long, for every attention call.
    """

    def __init__(self, interceptor: Interceptor, device_type: str) -> None:
        self.interceptor, self.before = interceptor, interceptor.in_callback
        autocast = torch.is_autocast_enabled(device_type)
        self.autocast: Any = torch.autocast(device_type, enabled=False) if autocast else nullcontext()

    def __enter__(self) -> None:
        self.interceptor.in_callback = True
        self.autocast.__enter__()

    def __exit__(self, *error: Any) -> None:
        self.interceptor.in_callback = self.before
        self.autocast.__exit__(*error)


class Patches:
    """A set of patches, shared by all threads: the first user applies them and the last one removes them."""

    def __init__(self, patches: Sequence[Patch]) -> None:
        self.patches = tuple(patches)
        self._lock = threading.Lock()
        self._users = 0
        self._undo = ExitStack()

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Keep the patches in place inside the block."""
        with self._lock:
            if not self._users:
                self._apply()
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._undo.close()

    def _apply(self) -> None:
        patches = self.patches
        if COMPILER in sys.modules:
            self._run_eagerly()
        else:  # importing it takes seconds
            patches = (*patches, Patch(torch, "compile", self._compiling))
        for owner, name, wrap in patches:
            original = getattr(owner, name)
            self._undo.callback(setattr, owner, name, original)
            setattr(owner, name, wrap(original))

    def _run_eagerly(self) -> None:
        self._undo.enter_context(torch.compiler.set_stance("force_eager"))

    def _compiling(self, original: Any) -> Any:
        """torch.compile, for the first time: by the model, or by FlexAttention, which compiles itself."""
        first = True

        @wraps(original)
        def compile(*args: Any, **kwargs: Any) -> Any:
            nonlocal first
            with self._lock:
                if first and self._users:
                    self._run_eagerly()
                first = False
            return original(*args, **kwargs)

        return compile


def is_recomputed() -> bool:
    """Does the model run inside torch.utils.checkpoint, which will compute it again in backward?"""
    frames = traceback.walk_stack(sys._getframe())
    return any(frame.f_code.co_filename == torch.utils.checkpoint.__file__ for frame, _ in frames)


def in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1

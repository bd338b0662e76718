"""Intercept every attention call of a model while it runs, to read it or to change what it returns.

Three mechanisms, active only in the thread that watches: a torch function mode passes each torch function to its
handler, by name; a replaced nn.Module.__call__ knows which module runs; regard's attend() calls an observer. The mode
is off where a module of torch.nn may take its fast path, which it does not take under a mode. Watches read a call, and
cuts change what it returns: first all cuts, then all watches, whatever the order of their blocks. What runs in
backward, such as the recomputation of a checkpoint, is not a forward.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
import torch.utils.checkpoint
from torch import Tensor, nn

from regard.attention.call import Call
from regard.attention.masks import Mask
from regard.heads.calls.call import Args, Kwargs, WatchedCall
from regard.heads.calls.edits import CallEdit, Editor, LayerEdit
from regard.heads.calls.head_axis import HeadAxis, find_head_axis
from regard.heads.calls.score_origin import Memory
from regard.heads.inputs.model_inputs import InputTracker
from regard.heads.inputs.module_call import ModuleCall, positional_names
from regard.heads.inputs.row_origin import RowOrigins, row_origins_of
from regard.heads.inputs.user_texts import Given
from regard.heads.intercept import flex, functorch, paths, regard_attention, sdpa, torch_nn  # noqa: F401  all paths
from regard.heads.intercept.paths import AROUND_FORWARD, FunctionMode, OwnComputation, current_interceptor
from regard.heads.intercept.softmax import SoftmaxTracker, report_softmax
from regard.heads.intercept.watched_model import Callback, Forwards, WatchedModel
from regard.traces.failures import explain_call

INTERCEPTED = (
    "scaled_dot_product_attention, torch.nn.MultiheadAttention, FlexAttention, regard's own attention, "
    "and softmax over the last axis of a (…, T, S) tensor followed by a matrix product"
)
OTHERWISE = "Attention that is written otherwise is seen once it calls one of these"
_VMAPPED = "it runs in torch.vmap, where one tensor stands for many; call the model with a batch instead"


@contextmanager
def intercept(
    model: nn.Module,
    callback: Callback | None = None,
    *,
    editor: Editor | None = None,
    contexts: bool = False,
    tokens: Given = None,
    padding: Given = None,
) -> Iterator[Forwards]:
    """Call `callback(forward, layer, call)` right after each attention call that the model makes inside the block.

    editor: changes what the calls return; what it changes is done before any callback. contexts: the callback's calls
    have `context`, what each head handed over. `forward` counts calls of the model, or of a part of it that is called
    by itself; `layer` counts attention calls within one. tokens: (B, T) ids, where the model's own arguments do not
    contain them. padding: (B, T), True = a real token. Both may be dicts of such tensors by the names of modules.
    """
    watched = WatchedModel(model, InputTracker(tokens, padding), callback, editor, contexts)
    for module, name in watched.names.values():
        if isinstance(module, torch.jit.ScriptModule):
            raise ValueError(
                f"{name or 'the model'} is TorchScript, which cannot be intercepted; watch the module it was made from"
            )
    interceptor = current_interceptor.get() or Interceptor()
    with _patches.applied(), current_interceptor.set(interceptor):
        interceptor.models.append(watched)
        try:
            yield watched.forwards
        finally:
            interceptor.models.remove(watched)
            interceptor.find_running()
    if not watched.forwards.count:
        remedy = "call it there, in the same thread (or asyncio task)"
        raise ValueError(f"the model was not called inside the block; {remedy}")
    if not watched.forwards.calls:
        why = "; ".join(watched.refusals().values()) or OTHERWISE
        raise ValueError(f"{type(model).__name__} made no attention that can be seen; looked for {INTERCEPTED}. {why}")
    watched.inputs.check_used()


def _intercepting_call(original: Any) -> Any:
    def __call__(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        interceptor = current_interceptor.get()
        if interceptor is None or not interceptor.models or interceptor.in_callback:
            return original(self, *args, **kwargs)
        if id(self) in interceptor.leaves:
            return interceptor.call_leaf(original, self, args, kwargs)
        return interceptor.call_module(original, self, args, kwargs)

    return __call__


_patches = paths.Patches([paths.Patch(nn.Module, "__call__", _intercepting_call), *paths.PATCHES])


class Interceptor:
    """Intercepts attention in one thread, for every model that is watched in it."""

    def __init__(self) -> None:
        self.models: list[WatchedModel] = []
        self.running: list[WatchedModel] = []  # those of the models that are being called
        self.leaves: set[int] = set()  # id() of those of their modules that make no attention
        self.in_callback = False
        self.multihead: torch_nn.MultiheadShape | None = None  # inside F.multi_head_attention_forward
        self.pending: flex.FlexSinks | None = None  # a call that is not reported yet, as its weights may change
        self.origins: RowOrigins | None = None  # where the tensors of this forward come from, if there may be a doubt
        self.softmaxes = SoftmaxTracker(partial(report_softmax, self), lambda: self.running[0].calls[-1].name)
        self.mode = FunctionMode(self)

    def find_running(self) -> None:
        """Models have started or stopped to run."""
        self.running = [model for model in self.models if model.calls]
        self.leaves = {key for model in self.running for key in model.leaves}
        self.softmaxes.keep_scores = any(m.editor is not None and m.editor.removes_edges for m in self.running)

    def call_module(self, original: Any, module: nn.Module, args: Args, kwargs: Kwargs) -> Any:
        """Call a module, with each watched model knowing that it runs."""
        is_outermost = not self.running
        if is_outermost and in_backward():
            if any(model.editor is not None and id(module) in model.names for model in self.models):
                raise ValueError(
                    f"{type(module).__name__} is computed again in backward, where it cannot be cut; switch gradient "
                    "checkpointing off"
                )
            return original(module, *args, **kwargs)
        entered: list[WatchedModel] = []
        output = None
        try:
            self._enter(module, args, kwargs, entered)
            if is_outermost and entered:
                output = self._run_outermost(original, module, args, kwargs)
            elif is_outermost or (self.mode.is_on and not isinstance(module, torch_nn.WITH_FAST_PATH)):
                output = original(module, *args, **kwargs)
            else:
                with self.mode_for(module):
                    output = original(module, *args, **kwargs)
                if self.origins is not None and isinstance(module, torch_nn.WITH_FAST_PATH):
                    self._hand_on(module, args, kwargs, output)
            return output
        finally:
            self._leave(entered, output)
            if is_outermost:
                self.softmaxes.forget()
                self.origins = None
                for model in entered if output is not None else ():
                    model.warn_of_refused()

    def _run_outermost(self, original: Any, module: nn.Module, args: Args, kwargs: Kwargs) -> Any:
        with ExitStack() as blocks:
            for block in AROUND_FORWARD:
                blocks.enter_context(block(self))
            blocks.enter_context(self.mode_for(module))
            output = original(module, *args, **kwargs)
            for lost in self.softmaxes.lost.values():  # over scores, and multiplied with no values that were understood
                for model in self.running:
                    model.refuse(lost.reason, lost.module)
            return output

    def call_leaf(self, original: Any, module: nn.Module, args: Args, kwargs: Kwargs) -> Any:
        """Call a module that makes no attention, without our mode where no tensor is followed."""
        patched = module._forward_hooks or module._forward_pre_hooks or "forward" in module.__dict__
        if patched or not self.mode.may_be_off:
            output = original(module, *args, **kwargs)
            if self.origins is not None and not self.mode.is_on and not patched:
                self._hand_on(module, args, kwargs, output)
            return output
        self.mode.set(on=False)
        try:
            output = original(module, *args, **kwargs)
            if self.origins is not None:
                self._hand_on(module, args, kwargs, output)
            return output
        except RuntimeError as error:  # which the mode would explain
            if isinstance(module, nn.Linear):
                first = (*args, *kwargs.values())[:1]
                if clearer := explain_call("linear", (*first, module.weight), error):
                    raise clearer from error
            raise
        finally:
            self.mode.set(on=True)

    def _hand_on(self, module: nn.Module, args: Args, kwargs: Kwargs, output: Any) -> None:
        """A module was called without our mode: the rows of its output are those of its first argument."""
        assert self.origins is not None
        is_learned = "weight" in module._parameters or bool(module._modules)
        self.origins.hand_on((*args, *kwargs.values()), output, is_learned)

    def _enter(self, module: nn.Module, args: Args, kwargs: Kwargs, entered: list[WatchedModel]) -> None:
        """The models that this module is part of know that it runs; they are added to `entered`."""
        with torch._C.DisableTorchFunction():  # every property of a tensor would pass through our own mode
            if functorch.is_active():
                args, kwargs = functorch.plain_arguments(args, kwargs)
            if not self.running:
                self._follow_rows(module, args, kwargs)
            for model in self.models:
                if model.enter(module, args, kwargs):
                    entered.append(model)
                    if len(model.calls) == 1:
                        self.find_running()

    def _follow_rows(self, module: nn.Module, args: Args, kwargs: Kwargs) -> None:
        """The outermost module is called: follow where tensors come from, where it reads several texts."""
        may_cross = [model.may_cross for model in self.models if model.knows(module)]
        if may_cross:
            names = positional_names(module) if args else ()
            self.origins = row_origins_of(names, args, kwargs, self._calls, any(may_cross))
            for model in self.models:
                model.inputs.origins = self.origins

    def _leave(self, models: Sequence[WatchedModel], output: Any) -> None:
        """These models' innermost module is done."""
        if self.pending is not None and models and self.pending.depth >= len(models[0].calls):
            self.report_pending()
        for model in models:
            if pieces := model.calls[-1].pieces:
                with OwnComputation(self, pieces[-1][0].device.type), torch.no_grad():
                    model.leave(output)
            else:
                model.leave(output)
            if not model.calls:
                self.find_running()
        for model in models:
            reason, model.uncuttable = model.uncuttable, ""
            if reason and output is not None:
                raise ValueError(reason)

    def mode_for(self, module: nn.Module) -> AbstractContextManager[None]:
        """The function mode as this module needs it: a mode on torch's stack would keep it off its fast path."""
        each_step = any(model.needs_each_step for model in self.running)
        return self.mode.switch(on=each_step or not torch_nn.may_take_fast_path(module))

    def find_heads(
        self, shape: tuple[int, ...], q: Memory | None, viewed: tuple[int, int] | None, by_convention: bool = False
    ) -> HeadAxis:
        """Which axis of a call, (…, T, S), holds its heads."""
        model, inside, T = self.running[0], self.multihead, shape[-2]
        batch, texts = model.inputs.batch_size(T), model.inputs.given.texts_of(T)
        if inside is not None:
            batch, viewed = inside.batch, viewed or (inside.batch, inside.heads)
        return find_head_axis(shape, model.heads, batch, viewed, q, by_convention, texts)

    def edits(self, part: str = "") -> list[tuple[WatchedModel, LayerEdit]]:
        """What the cuts of the running models change in the attention call that is about to run."""
        edits = [(model, edit) for model in self.running if (edit := model.edit(part)) is not None]
        if edits and is_recomputed():
            raise ValueError(
                f"the attention in {self._module_name()} runs in torch.utils.checkpoint, which computes it again in "
                "backward, uncut; switch gradient checkpointing off to cut it"
            )
        return edits

    @property
    def needs_contexts(self) -> bool:
        """Is anybody to be given what each head handed over?"""
        return any(model.contexts for model in self.running)

    def edit_of(self, call: WatchedCall, edits: Sequence[tuple[WatchedModel, LayerEdit]]) -> CallEdit | None:
        """All edits of a call as one."""
        if not edits:
            return None
        call = self._with_extra_keys(call.detached())
        with OwnComputation(self, call.device.type), torch.no_grad():
            return CallEdit([model.place(edit, call) for model, edit in edits])

    def finish(self, call: WatchedCall, edit: CallEdit | None, out: Tensor) -> Tensor:
        """Change the output of a call, and report the call. `out` has as many numbers as (B, H, T, D), in this order.

        Edges are removed here where the call has values; otherwise that was done before.
        """
        if edit is None and not self.needs_contexts:
            self.report(call.detached())
            return out
        with OwnComputation(self, call.device.type), self.errors_naming_the_module("cut" if edit else "follow"):
            if out.is_nested:
                raise ValueError("its texts are nested tensors; pad them to one length")
            context = out.reshape(*call.sizes[:3], out.shape[-1])
            removed = None
            if edit is not None:
                if isinstance(call.attention, Call):
                    removed, context = edit.removed, edit.replace_rows(context, call.attention)
                context = edit.replace_heads(context)
                out = context.reshape(out.shape)
        self.report(call.detached(), removed, context)
        return out

    def report(self, call: WatchedCall, removed: Mask | None = None, context: Tensor | None = None) -> None:
        """Pass a call to the running models."""
        if self.is_vmapped():
            return
        if functorch.is_active():
            call, context = functorch.plain(call), functorch.plain(context)
        call = self._with_extra_keys(call)
        with OwnComputation(self, call.device.type), functorch.off(), torch.no_grad():
            for model in self.running:
                model.report(call, removed, context)

    def is_vmapped(self) -> bool:
        """Does the attention call run in torch.vmap? Then it is refused."""
        if not functorch.is_vmapped():
            return False
        if self.edits():
            raise ValueError(f"cannot cut the attention in {self._module_name()}: {_VMAPPED}")
        self.refuse(_VMAPPED)
        return True

    def _with_extra_keys(self, call: WatchedCall) -> WatchedCall:
        _, _, T, S = call.sizes
        extra = self.multihead.extra_keys if self.multihead is not None else 0
        return call.with_origin(extra=extra) if extra and extra == S - T else call

    def refuse(self, reason: str) -> None:
        """The attention that is running is not reported, and cannot be cut."""
        if any(model.editor is not None and model.editor.everywhere for model in self.running):
            raise ValueError(f"cannot cut the attention in {self._module_name()}: {reason}")
        for model in self.running:
            model.refuse(reason)

    def report_pending(self) -> None:
        """Report the call that waits for it, with what became of its output since then."""
        pending, self.pending = self.pending, None
        if pending is not None:
            if self.origins is not None and pending.asked is not None:
                self.origins.asked = pending.asked
            self.refuse(pending.unknown) if pending.unknown else self.report(pending.call)

    @contextmanager
    def errors_naming_the_module(self, verb: str = "follow") -> Iterator[None]:
        """Say in which module an attention call could not be read or cut."""
        try:
            yield
        except (ValueError, RuntimeError, TypeError, IndexError) as error:
            raise ValueError(f"cannot {verb} the attention in {self._module_name()}: {error}") from error

    def _calls(self) -> list[ModuleCall]:
        return self.running[0].calls

    def _module_name(self) -> str:
        return self.running[0].calls[-1].name or "the model itself"


def is_recomputed() -> bool:
    """Does the model run inside torch.utils.checkpoint, which will compute it again in backward?"""
    frames = traceback.walk_stack(sys._getframe())
    return any(frame.f_code.co_filename == torch.utils.checkpoint.__file__ for frame, _ in frames)


def in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1

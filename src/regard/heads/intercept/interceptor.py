"""The interceptor: what runs in one thread while models are watched or cut, and which attention call is whose.

It is entered by every module call (intercept.py) and by every torch function (paths.py).
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
import torch.utils.checkpoint
from torch import Tensor, nn

from regard.attention.call import Call
from regard.attention.masks import Mask
from regard.heads.calls.axis_roles import HEAD, AxisRoles
from regard.heads.calls.basis import assumed, unknown
from regard.heads.calls.call import Args, Kwargs, OwnWeights, WatchedCall, changed, has_values
from regard.heads.calls.edits import CallEdit, LayerEdit
from regard.heads.calls.head_axis import HeadAxis, find_head_axis, is_in_doubt
from regard.heads.calls.lineage import TensorLineage
from regard.heads.calls.score_origin import Memory
from regard.heads.inputs.module_call import ModuleCall, positional_names
from regard.heads.inputs.row_origin import RowOrigins, row_origins_of
from regard.heads.intercept import flex, functorch, paths, torch_nn
from regard.heads.intercept.linear_paths import LinearPaths
from regard.heads.intercept.paths import AROUND_FORWARD, FunctionMode, OwnComputation
from regard.heads.intercept.recorded_modules import forget_ordinary, is_ordinary, remember_as_ordinary
from regard.heads.intercept.softmax import SoftmaxTracker
from regard.heads.intercept.watched_model import TWICE, WatchedModel
from regard.heads.intercept.weight_uses import WeightUses
from regard.traces.failures import explain_call

USUAL_AXIS = HeadAxis()
_VMAPPED = "it runs in torch.vmap, where one tensor stands for many; call the model with a batch instead"


class Interceptor:
    """Intercepts attention in one thread, for every model that is watched in it."""

    def __init__(self, models: Sequence[WatchedModel] = ()) -> None:
        self.models = [model for model in models if model.is_open]
        self.running: list[WatchedModel] = []  # those of the models that are being called
        self.leaves: set[int] = set()  # id() of those of their modules that make no attention
        self.in_callback = False
        self.multihead: torch_nn.MultiheadShape | None = None  # inside F.multi_head_attention_forward
        self.pending: flex.FlexSinks | None = None  # a call that is not reported yet, as its weights may change
        self.origins: RowOrigins | None = None  # where the tensors of this forward come from, if there may be a doubt
        self.lineage = TensorLineage()
        self.records = False  # are the functions of the innermost module recorded?
        self.doubts = 0  # how often attention was not as usual
        self.softmaxes = SoftmaxTracker(self)
        self.linear_paths = LinearPaths(self.module_name)
        self.weight_uses = WeightUses(self.softmaxes._softmax_of)
        self.mode = FunctionMode(self)

    def find_running(self) -> None:
        """Models have started or stopped to run."""
        self.running = [model for model in self.models if model.calls]
        self.leaves = {key for model in self.running for key in model.leaves}
        self.linear_paths.is_on = self.needs_contexts and not functorch.is_active()
        self.weight_uses.is_on = any(model.editor is not None for model in self.running)
        self.softmaxes.keep_scores = any(m.editor is not None and m.editor.removes_edges for m in self.running)

    def call_module(self, original: Any, module: nn.Module, args: Args, kwargs: Kwargs) -> Any:
        """Call a module, with each watched model knowing that it runs."""
        is_outermost = not self.running
        if is_outermost and in_backward():
            self._check_uncut(module)
            return original(module, *args, **kwargs)
        entered: list[WatchedModel] = []
        output, records, doubts = None, self.records, self.doubts
        try:
            self._enter(module, args, kwargs, entered)
            self.records = bool(self.running) and not is_ordinary(module)
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
        except BaseException:
            self._drop_calls(entered)
            raise
        finally:
            self._leave(entered, output)
            if self.records and self.doubts == doubts and output is not None:
                remember_as_ordinary(module)
            self.records = records
            if is_outermost:
                self._forget()
                for model in entered if output is not None else ():
                    model.warn_of_refused()

    def _check_uncut(self, module: nn.Module) -> None:
        """A module that is computed again in backward must not be one that is cut."""
        if any(m.editor is not None and m.is_open and id(module) in m.names for m in self.models):
            raise ValueError(
                f"{type(module).__name__} is computed again in backward, where it cannot be cut; switch gradient "
                "checkpointing off"
            )

    def _forget(self) -> None:
        """The outermost module is done: no tensor is followed any more."""
        for followed in (self.softmaxes, self.weight_uses, self.linear_paths):
            followed.forget()
        self.lineage.clear()
        self.origins = None

    def _run_outermost(self, original: Any, module: nn.Module, args: Args, kwargs: Kwargs) -> Any:
        with ExitStack() as blocks:
            for block in AROUND_FORWARD:
                blocks.enter_context(block(self))
            blocks.enter_context(self.mode_for(module))
            output = original(module, *args, **kwargs)
            self.linear_paths.leave(output, 1)
            self.linear_paths.check_proven()
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
            if self.records:
                self.lineage.leaf(module, args, output)
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

    def _drop_calls(self, models: Sequence[WatchedModel]) -> None:
        """These models' innermost module raised an error, which may be caught."""
        if self.pending is not None and models and self.pending.depth >= len(models[0].calls):
            self.pending = None
        for model in models:
            model.drop_calls()

    def _leave(self, models: Sequence[WatchedModel], output: Any) -> None:
        """These models' innermost module is done."""
        if self.pending is not None and models and self.pending.depth >= len(models[0].calls):
            self.report_pending()
        if self.linear_paths.is_on and models:
            self.linear_paths.leave(output, len(models[0].calls))
        for model in models:
            call = model.calls[-1]
            if held := call.pieces or call.parts:
                for lost in self.softmaxes.lost.values():
                    if lost.module == call.name:  # these are fragments of what it computes
                        model.refuse(lost.reason)
                with OwnComputation(self, held[-1][0].device.type), torch.no_grad():
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
        self,
        shape: tuple[int, ...],
        q: Memory | None,
        viewed: tuple[int, int] | None,
        roles: Callable[[], AxisRoles | None],
        by_convention: bool = False,
    ) -> HeadAxis:
        """Which axis of a call, (…, T, S), holds its heads; roles: what its axes are, by the way its queries went."""
        model, inside, T = self.running[0], self.multihead, shape[-2]
        batch, texts = model.inputs.batch_size(T), model.inputs.given.texts_of(T)
        if inside is not None:
            return HeadAxis() if len(shape) == 4 else HeadAxis(split=(inside.batch, inside.heads))
        given = model.inputs.given.shape
        time_first = len(given) == 3 and given[1] != T  # or other axes than they seem
        if not is_in_doubt(shape, model.heads, None if time_first else texts, None if time_first else batch, q):
            return HeadAxis()
        self._doubt()
        with OwnComputation(self, "cpu"):
            known = roles()
        if known is None or not known.is_proven:
            axis = find_head_axis(shape, model.heads, batch, viewed, q, by_convention, texts)
            return axis if known is None else axis.with_part_of(known, shape)
        if known.plan is None:
            return HeadAxis(fact=unknown(known.refusal))
        heads, plan = known.plan.count(HEAD), None if len(shape) == 4 and known.plan.is_usual else known.plan
        fact = model.fact_of_heads(heads)
        if model.heads and heads not in (1, model.heads):
            if model.heads % heads:  # labels and the module contradict each other
                return find_head_axis(shape, model.heads, batch, viewed, q, by_convention, texts)
            fact = assumed(f"{heads} of the {model.heads} heads that its module has")
        return HeadAxis(plan=plan, fact=fact, part=known.part_of_several)

    def _doubt(self) -> None:
        """What runs is to be recorded the next time, too."""
        self.doubts += 1
        for call in self.running[0].calls:
            forget_ordinary(call.module)

    def edits(self, part: str = "") -> list[tuple[WatchedModel, LayerEdit]]:
        """What the cuts of the running models change in the attention call that is about to run."""
        edits = [(model, edit) for model in self.running if (edit := model.edit(part)) is not None]
        if edits and is_recomputed():
            raise ValueError(
                f"the attention in {self.module_name()} runs in torch.utils.checkpoint, which computes it again in "
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

    def prove_order(self, axis: HeadAxis, context: Tensor) -> None:
        """Heads were cut: where texts and heads are in one axis, their order must show in what the model does next."""
        if axis.shares_axis and self.multihead is None:
            self.linear_paths.prove(context)

    def finish(self, call: WatchedCall, edit: CallEdit | None, out: Tensor, axis: HeadAxis = USUAL_AXIS) -> Tensor:
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
                if edit.replaced and not isinstance(call.attention, Call):
                    raise ValueError("its values are not known, so that edges of another run cannot be put in")
                if isinstance(call.attention, Call):
                    removed, context = edit.removed, edit.replace_rows(context, call.attention)
                context = edit.replace_heads(context)
                self.prove_order(axis, context)
                out = context.reshape(out.shape)
            values = call.attention.v if isinstance(call.attention, Call) else None
            if edit is not None and edit.replaced and isinstance(call.attention, Call):  # weights that no q · k gives
                own = OwnWeights(edit.all_weights(call.attention).detach(), call.attention.mask)
                call, removed = changed(call, attention=own, lse=None), None
        self.report(call.detached(), removed, context, values)
        return out

    def report(
        self,
        call: WatchedCall,
        removed: Mask | None = None,
        context: Tensor | None = None,
        values: Tensor | None = None,
    ) -> None:
        """Pass a call to the running models."""
        if self.is_vmapped():
            return
        if not has_values(call.attention.weights if isinstance(call.attention, OwnWeights) else call.attention.q):
            self.refuse(paths.NO_VALUES)
            return
        if functorch.is_active():
            call, context = functorch.plain(call), functorch.plain(context)
        call = self._with_extra_keys(call)
        with OwnComputation(self, call.device.type), functorch.off(), torch.no_grad():
            if self.linear_paths.is_on and context is not None:
                depth = len(self.running[0].calls)
                call = changed(call, wiring=self.linear_paths.attend(call, values, context, depth))
            for model in self.running:
                model.report(call, removed, context)

    def is_vmapped(self) -> bool:
        """Does the attention call run in torch.vmap? Then it is refused."""
        if not functorch.is_vmapped():
            return False
        if self.edits():
            raise ValueError(f"cannot cut the attention in {self.module_name()}: {_VMAPPED}")
        self.refuse(_VMAPPED)
        return True

    def _with_extra_keys(self, call: WatchedCall) -> WatchedCall:
        _, _, T, S = call.sizes
        extra = self.multihead.extra_keys if self.multihead is not None else 0
        return call.with_origin(extra=extra) if extra and extra == S - T else call

    def refuse(self, reason: str) -> None:
        """The attention that is running is not reported, and cannot be cut."""
        self._doubt()
        if any(model.editor is not None and model.editor.everywhere for model in self.running):
            raise ValueError(f"cannot cut the attention in {self.module_name()}: {reason}")
        for model in self.running:
            model.refuse(reason)

    def warn_of_second_product(self) -> None:
        """The weights that were reported are multiplied once more."""
        self._doubt()
        if any(model.cut_last for model in self.running):
            raise ValueError(f"cannot cut the attention in {self.module_name()}: {TWICE}")
        for model in self.running:
            model.refuse(TWICE, model.calls[-1].name)

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
            raise ValueError(f"cannot {verb} the attention in {self.module_name()}: {error}") from error

    def _calls(self) -> list[ModuleCall]:
        return self.running[0].calls

    def module_name(self) -> str:
        """The name of the module that runs."""
        return self.running[0].calls[-1].name or "the model itself"


def is_recomputed() -> bool:
    """Does the model run inside torch.utils.checkpoint, which will compute it again in backward?"""
    frames = traceback.walk_stack(sys._getframe())
    return any(frame.f_code.co_filename == torch.utils.checkpoint.__file__ for frame, _ in frames)


def in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1

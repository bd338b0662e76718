"""The interceptor: what runs in one thread while models are watched or cut, and which attention call is whose.

It is entered by every module call (intercept.py) and by every torch function (paths.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.call import Call
from regard.attention.masks import Mask
from regard.heads.calls.axis_roles import AxisRoles, CallPart, may_be_labelled, part_of_usual
from regard.heads.calls.call import Args, Kwargs, OwnWeights, WatchedCall, changed, has_values
from regard.heads.calls.edits import CallEdit, LayerEdit
from regard.heads.calls.head_axis import HeadAxis, UsualCalls, find_head_axis, is_in_doubt
from regard.heads.calls.lineage import TensorLineage
from regard.heads.calls.score_origin import Memory
from regard.heads.inputs.module_call import ModuleCall, positional_names
from regard.heads.inputs.row_functions import MAY_MOVE, may_move, tensors_given
from regard.heads.inputs.row_origin import RowOrigins
from regard.heads.intercept import flex, functorch, known_forms, paths, torch_nn
from regard.heads.intercept.linear_paths import LinearPaths
from regard.heads.intercept.paths import AROUND_FORWARD, FunctionMode, OwnComputation, in_backward, is_recomputed
from regard.heads.intercept.softmax import SoftmaxTracker
from regard.heads.intercept.watched_model import TWICE, WatchedModel
from regard.heads.intercept.weight_uses import WeightUses
from regard.traces.failures import explain_call

USUAL_AXIS = HeadAxis()
_usual = UsualCalls()
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
        self.records = False  # are functions recorded in this forward?
        self.doubts = 0  # how often attention was not as usual in this forward: it is recorded the next time, too
        self.form: known_forms.FollowedForm | None = None  # how the outermost module was called
        self.new_moves: frozenset[str] = frozenset()  # functions that may move rows, where these are not followed
        self.softmaxes = SoftmaxTracker(self)
        self.linear_paths = LinearPaths(self.module_name)
        self.weight_uses = WeightUses(self)
        self.mode = FunctionMode(self)

    def find_running(self) -> None:
        """Models have started or stopped to run."""
        self.running = [model for model in self.models if model.calls]
        self.leaves = {key for model in self.running for key in model.leaves}
        self.linear_paths.is_on = self.needs_contexts and not functorch.is_active()
        self.softmaxes.keep_scores = any(m.editor is not None and m.editor.removes_edges for m in self.running)

    def call_module(self, original: Any, module: nn.Module, args: Args, kwargs: Kwargs) -> Any:
        """Call a module, with each watched model knowing that it runs."""
        is_outermost = not self.running
        if is_outermost and in_backward():
            self._check_uncut(module)
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
        except BaseException:
            self._drop_calls(entered)
            raise
        finally:
            self._leave(entered, output)
            if is_outermost:
                self._forget(is_whole=output is not None)
                for model in entered if output is not None else ():
                    model.warn_of_refused()

    def _check_uncut(self, module: nn.Module) -> None:
        """A module that is computed again in backward must not be one that is cut."""
        if any(m.editor is not None and m.is_open and id(module) in m.names for m in self.models):
            rule = f"{type(module).__name__} is computed again in backward, where it cannot be cut"
            raise ValueError(f"{rule}; switch gradient checkpointing off")

    def _forget(self, is_whole: bool) -> None:
        """The outermost module is done: no tensor is followed any more."""
        if self.form is not None and is_whole:
            if self.records and not self.doubts:
                known_forms.remember_as_unneeded(self.form, known_forms.What.AXES)
            if self.origins is not None and not self.origins.is_needed:
                known_forms.remember_as_unneeded(self.form, known_forms.What.ROWS, frozenset(self.origins.moves))
        self.form, self.new_moves, self.records, self.doubts = None, frozenset(), False, 0
        for followed in (self.softmaxes, self.weight_uses, self.linear_paths):
            followed.forget()
        self.lineage.clear()
        self.follow_rows(None)

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
        self.origins.hand_on((*args, *kwargs.values()), output, torch_nn.may_mix_last_axis(module))

    def _enter(self, module: nn.Module, args: Args, kwargs: Kwargs, entered: list[WatchedModel]) -> None:
        """The models that this module is part of know that it runs; they are added to `entered`."""
        with torch._C.DisableTorchFunction():  # every property of a tensor would pass through our own mode
            if functorch.is_active():
                args, kwargs = functorch.plain_arguments(args, kwargs)
            if not self.running:
                self._begin(module, args, kwargs)
            for model in self.models:
                if model.enter(module, args, kwargs):
                    entered.append(model)
                    if len(model.calls) == 1:
                        self.find_running()

    def _begin(self, module: nn.Module, args: Args, kwargs: Kwargs) -> None:
        """The outermost module is called: follow its tensors, unless that was not needed before."""
        if any(model.knows(module) for model in self.models):
            names = positional_names(module) if args else ()
            arguments = list(tensors_given(names, args, kwargs))
            if arguments and not any(has_values(tensor) for _, tensor in arguments):
                return
            self.form = known_forms.call_form(module, names, args, kwargs)
            self.records = known_forms.moves_without_need(self.form, known_forms.What.AXES) is None
            moves = known_forms.moves_without_need(self.form, known_forms.What.ROWS)
            self.new_moves = frozenset() if moves is None else frozenset(MAY_MOVE - moves)
            self.follow_rows(arguments if moves is None else None)

    def follow_rows(self, arguments: list[tuple[str, Tensor]] | None) -> None:
        """From these arguments on; None: not at all."""
        self.origins = None if arguments is None else RowOrigins(arguments, self._calls)
        for model in self.models:
            model.inputs.origins = self.origins

    def notice_move(self, name: str, args: Args) -> None:
        """Rows are not followed, and a function may move them that no forward of this form had: they are unknown."""
        if self.form is None or self.origins is not None or self.in_callback or not may_move(name, args):
            return
        known_forms.forget(self.form)
        self.follow_rows([])

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
        time_first = len(given := model.inputs.given.shape) == 3 and given[1] != T  # or other axes than they seem
        module, which = model.calls[-1].module, (model.call_number, by_convention, *shape[1:2])
        if not is_in_doubt(shape, model.heads, None if time_first else texts, None if time_first else batch, q):
            _usual.add(module, which)
            return HeadAxis(part=self._part_of(shape, roles) if self.records and model.heads is None else None)
        if _usual.decide(module, which, shape, model.heads):
            return HeadAxis()
        self.doubts += 1
        with OwnComputation(self, "cpu"):
            known = roles()
        return model.axis_by_roles(
            shape, known, lambda: find_head_axis(shape, model.heads, batch, viewed, q, by_convention, texts)
        )

    def _part_of(self, shape: tuple[int, ...], roles: Callable[[], AxisRoles | None]) -> CallPart | None:
        """What of its module's input a call (B, H, T, S) has, where nothing says that these are all of the heads."""
        if self.running[0].calls[-1].parts:
            self.doubts += 1
        with OwnComputation(self, "cpu"):
            return part_of_usual(roles()) if may_be_labelled(shape) else None

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
            edit = CallEdit([model.place(edit, call) for model, edit in edits])
        for model, _ in edits:
            model.calls[-1].is_cut |= call.origin.part is not None and edit.differs_by_text
        return edit

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
        self.doubts += 1
        if any(model.editor is not None and model.editor.everywhere for model in self.running):
            raise ValueError(f"cannot cut the attention in {self.module_name()}: {reason}")
        for model in self.running:
            model.refuse(reason)

    def warn_of_second_product(self, module: str) -> None:
        """The weights that were reported are multiplied once more."""
        self.doubts += 1
        for model in self.running:
            model.refuse(TWICE, module)

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

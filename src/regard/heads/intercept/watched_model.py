"""One model that is watched or cut: which of its modules are running, how its layers are numbered, whom to tell.

More than half of the modules that a model calls are leaves, which make no attention, whatever they are called with.
They are called without bookkeeping, and without our function mode where no tensor is followed: the mode would take
longer than many of them do.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from torch import Tensor, nn

from regard.attention.call import QK
from regard.attention.masks import Mask
from regard.heads.calls.axis_roles import HEAD, AxisRoles, part_of_usual
from regard.heads.calls.basis import FROM_CALL, Fact, assumed, unknown
from regard.heads.calls.call import Args, Kwargs, WatchedCall, changed, names_in_short
from regard.heads.calls.edits import Editor, LayerEdit, PlacedEdit
from regard.heads.calls.head_axis import HeadAxis, declared_heads
from regard.heads.inputs.model_inputs import InputTracker
from regard.heads.inputs.module_call import ModuleCall
from regard.heads.inputs.positions import whole_text
from regard.heads.intercept.joined_calls import Piece, joined

Callback = Callable[[int, int, WatchedCall], None]  # (forward, layer, call)
Dropped = Callable[[int, int], None]  # (forward, layer): calls of this forward, from this layer on, count for nothing
IN_PIECES = "it is computed in pieces, which are not joined"
TWICE = "its weights are multiplied with a second tensor, and that product is not followed"
WRITTEN_OVER = "its tensors are written over before all of its heads or texts are computed"
IN_CALLS = "its heads or texts are computed one after the other"
MODULES_AROUND = 3  # how many modules are asked for their number of heads, from the innermost on
WRAPPERS = {"_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module"}  # submodule names that torch inserts
LEAVES = {
    *(nn.Linear, nn.Embedding, nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.Dropout, nn.Identity),
    *(nn.GELU, nn.ReLU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Conv1d, nn.Conv2d),
}
# Those of transformers by their names, so that it need not be imported.
NAMES = {
    "transformers.pytorch_utils.Conv1D",
    *(f"transformers.activations.{name}" for name in ("NewGELUActivation", "GELUActivation", "SiLUActivation")),
    *(
        f"transformers.models.{name.lower()}.modeling_{name.lower()}.{name}RMSNorm"
        for name in ("Llama", "Mistral", "Qwen2", "Qwen3", "Gemma", "Gemma2", "Gemma3")
    ),
}


@dataclass
class Forwards:
    """How often the model was called so far, and how many attention calls it made."""

    count: int = 0
    failed: int = 0  # how many of them raised an error
    calls: int = 0
    # The number of each layer, by its module and how often that was called before in a forward.
    layers: dict[tuple[str, int], int] = field(default_factory=dict)


class WatchedModel:
    """One model that is watched or cut: which of its modules are running, the callback, and what is changed.

    contexts: give the callback what each head handed over. calls: the module calls in progress, innermost last.
    """

    def __init__(
        self,
        model: nn.Module,
        inputs: InputTracker,
        callback: Callback | None = None,
        editor: Editor | None = None,
        contexts: bool = False,
        dropped: Dropped | None = None,
    ) -> None:
        self.names = {  # by id(); the modules are kept alive with their names: an id may be used again otherwise
            id(module): (module, ".".join(part for part in name.split(".") if part not in WRAPPERS))
            for name, module in model.named_modules()
        }
        self.leaves = {key for key, (m, _) in self.names.items() if is_leaf(m)}
        self.callback, self.inputs, self.editor, self.contexts = callback, inputs, editor, contexts
        self.dropped, self.is_open = dropped, True
        self.calls = inputs.calls
        self.refused: dict[str, list[str]] = {}  # modules whose attention is not reported, by reason
        self.uncuttable = ""  # why a cut that was made was none, or not whole
        self.cut: set[str] = set()  # modules whose attention was cut in this forward
        self._warned: set[str] = set()
        self._heads: dict[int, int | None] = {}  # by id() of the module
        self.forwards = Forwards()
        self.layers: list[str] = []  # the modules of the attention calls in this forward
        self.times: Counter[str] = Counter()  # how often each is among them

    @property
    def heads(self) -> int | None:
        """How many heads the module that runs has, by its own account or by that of the modules around it."""
        innermost = id(self.calls[-1].module)
        if innermost not in self._heads:
            self._heads[innermost] = declared_heads(call.module for call in self.calls[: -MODULES_AROUND - 1 : -1])
        return self._heads[innermost]

    def axis_by_roles(
        self, shape: tuple[int, ...], known: AxisRoles | None, by_sizes: Callable[[], HeadAxis]
    ) -> HeadAxis:
        """Where the heads of a call are, by the roles of its axes; where nothing proves these, by sizes."""
        if known is None or not known.is_proven:
            return by_sizes() if known is None else by_sizes().with_part_of(known, shape)
        if known.plan is None:
            return HeadAxis(fact=unknown(known.refusal))
        heads, plan = known.plan.count(HEAD), None if len(shape) == 4 and known.plan.is_usual else known.plan
        fact = self.fact_of_heads(heads)
        if self.heads and heads not in (1, self.heads):
            if self.heads % heads:  # labels and the module contradict each other
                return by_sizes()
            fact = assumed(f"{heads} of the {self.heads} heads that its module has")
        part = part_of_usual(known) if self.heads is None else None
        return HeadAxis(plan=plan, fact=fact, part=known.part_of_several if part is None else part)

    def fact_of_heads(self, heads: int) -> Fact:
        """How the number of heads is known: a module of one head, in a list of such, may be one head of a layer."""
        call = self.calls[-1]
        outer, (path, _, number) = call.outer, call.name.rpartition(".")
        if heads > 1 or outer is None or not number.isdigit() or not (call.args and outer.args):
            return FROM_CALL
        beside = outer.module
        for name in path[len(outer.name) :].strip(".").split("."):
            beside = getattr(beside, name, beside)
        alike = sum(type(one) is type(call.module) for one in beside.children())
        if alike < 2 or call.args[0] is not outer.args[0]:
            return FROM_CALL
        return assumed(f"a layer of one head; {alike} modules of its kind may be heads of one layer")

    @property
    def needs_calls(self) -> bool:
        """Must it know every call, also those that its cut does not change?"""
        return self.callback is not None or (self.editor is not None and self.editor.removes_edges)

    @property
    def needs_each_step(self) -> bool:
        """Must its attention run step by step, and not inside one operator with everything else?"""
        return self.contexts or self.editor is not None

    def enter(self, module: nn.Module, args: Args, kwargs: Kwargs) -> bool:
        """A module is called, in any model. Is it part of this one?"""
        known = self.knows(module)
        if known is None or not self.is_open:
            return False
        if not self.calls:
            self.forwards.count += 1
            self.layers.clear()
            self.times.clear()
            self.cut.clear()
        self.inputs.enter(known[0], args, kwargs, known[1])
        self.calls[-1].first_layer = len(self.layers)
        return True

    def drop_calls(self) -> None:
        """The innermost module raised an error: its attention calls so far are not reported."""
        self.forwards.failed += len(self.calls) == 1
        self.calls[-1].pieces.clear()
        self.calls[-1].parts.clear()
        first = self.calls[-1].first_layer
        if self.dropped is not None and len(self.layers) > first:
            self.dropped(self.forwards.count - 1, first)
        while len(self.layers) > first:
            self.times[self.layers.pop()] -= 1
            self.forwards.calls -= 1

    def knows(self, module: nn.Module) -> tuple[nn.Module, str] | None:
        """The module and its name, if it is part of this model."""
        return self.names.get(id(module)) or self.names.get(id(module._modules.get("_orig_mod")))  # compiled later

    def leave(self, output: Any) -> None:
        """The innermost module is done, and returned this; None after an error."""
        if self.calls[-1].parts:
            self._report_parts(self.calls[-1])
        if self.calls[-1].pieces:
            self._report_pieces(self.calls[-1])
        self.inputs.leave(output)

    def _report_parts(self, call: ModuleCall) -> None:
        """Calls that may be parts of one attention, such as a loop over heads, are reported as one, where they are."""
        parts, call.parts = call.parts, []
        if [_version(part) for part, _, _ in parts] != call.versions:
            self.refuse(WRITTEN_OVER)
            return
        pieces = joined([Piece(*part) for part in parts])
        reason = IN_CALLS if len(pieces) == 1 < len(parts) and call.is_cut else self._unlike_cuts(len(pieces))
        if reason:
            self.uncuttable = f"cannot cut the attention in {self._name('') or 'the model itself'}: {reason}"
        is_one_of_several = len(pieces) > 1 or self._name("") in self.layers[call.first_layer :]
        for piece in pieces:
            one = piece.call.with_origin(part=None)
            if is_one_of_several and one.sizes[1] < (self.heads or 0) and one.origin.basis.heads == FROM_CALL:
                fact = assumed(f"{one.sizes[1]} of the {self.heads} heads that its module has")
                one = one.with_origin(basis=changed(one.origin.basis, heads=fact))
            self.report(one, piece.removed, piece.context)

    def _unlike_cuts(self, count: int) -> str:
        """Calls were several layers, each cut as the first of them: why that is not what was asked for."""
        if self.editor is None or self.editor.everywhere or count == 1:
            return ""
        layers = [self.next_layer(ahead=ahead) for ahead in range(count)]
        first, *others = [self.editor.at(layer) for layer in layers]
        if all(first is other is None or (first and other and first.is_like(other)) for other in others):
            return ""
        return f"it makes several calls, which are layers {layers[0]} to {layers[-1]}; cut the same in all of them"

    def _report_pieces(self, call: ModuleCall) -> None:
        """One call with some rows of the module's text is reported; several are the pieces of one attention."""
        if len(call.pieces) == 1 and not call.is_refused:
            self._pass_on(*call.pieces[0])
            return
        for name in dict.fromkeys(piece.origin.module for piece, _, _ in call.pieces):
            self.refuse(IN_PIECES, name)
            if call.is_cut:
                self.uncuttable = f"cannot cut the attention in {name or 'the model itself'}: {IN_PIECES}"

    def refuse(self, reason: str, name: str | None = None) -> None:
        """The attention in this module is not reported; the first reason is enough."""
        if name is None:
            name = self._name("")
            self.calls[-1].is_refused = True
        if name in self.cut:
            self.uncuttable = _in_part(name, reason)
        if not any(name in names for names in self.refused.values()):
            self.refused.setdefault(reason, []).append(name)

    def warn_of_refused(self) -> None:
        """Say, once, whose attention is not reported, and why."""
        for reason, said in self.refusals().items():
            if reason not in self._warned:
                self._warned.add(reason)
                warnings.warn(said, stacklevel=2)

    def refusals(self) -> dict[str, str]:
        """What is not reported, by reason, in words."""
        said = {}
        for reason, names in self.refused.items():
            where = names_in_short([name or "the model itself" for name in names])
            said[reason] = (
                f"the attention in {where} is {'reported in part' if reason is TWICE else 'not reported'}: {reason}"
            )
        return said

    def edit(self, part: str) -> LayerEdit | None:
        """What its cut changes in the attention call that is about to run; part: as `module` of the call."""
        if self.editor is None:
            return None
        return self.editor.at(self.next_layer(part))

    @property
    def call_number(self) -> int:
        """How many attention calls the module that runs has made in this forward."""
        return self.times[self._name("")]

    def next_layer(self, part: str = "", ahead: int = 0) -> int:
        """The number of the attention call that is about to run, or of one of those after it."""
        name, layers = self._name(part), self.forwards.layers
        return layers.get((name, self.times[name] + ahead), len(layers) + ahead)

    def place(self, edit: LayerEdit, call: WatchedCall) -> PlacedEdit:
        """The edit with the call, annotated."""
        name = self._name(call.origin.module)
        for reason, names in self.refused.items():
            if name in names:
                raise ValueError(_in_part(name, reason))
        self.cut.add(name)
        call = self.inputs.annotate(call, name)
        is_part = call.origin.part is not None
        is_one_of_many = is_part and (1 in call.sizes[:2] or bool(self.calls[-1].parts))
        if is_one_of_many and any(head >= call.sizes[1] for head in (*edit.values, *(edit.edge_heads or ()))):
            raise ValueError(f"cannot cut the attention in {name or 'the model itself'}: {IN_CALLS}")
        if (is_part and edit.names_heads) or not self.inputs.is_whole(call):
            self.calls[-1].is_cut = True
        return PlacedEdit(edit, call, self.inputs.positions(call))

    def may_be_piece(self, query: Tensor) -> bool:
        """May a call of SDPA have other queries than the tokens that its module was given, or be one of several?"""
        given = self.inputs.given
        if query.is_nested or not given.shape:
            return False
        return query.dim() != 4 or query.shape[1] == 1 or given.texts_of(query.shape[-2]) != query.shape[0]

    def report(self, call: WatchedCall, removed: Mask | None, context: Tensor | None) -> None:
        """Pass an attention call to the callback, without the removed edges."""
        name = self._name(call.origin.module)
        if call.origin.part is not None:
            self.calls[-1].parts.append((call, removed, context))
            self.calls[-1].versions.append(_version(call))
            return
        if self.needs_calls or not whole_text(call, self.inputs.given):
            call = self.inputs.annotate(call, name)  # also notes that keys are cached, which tells positions later
            if not self.inputs.is_whole(call):
                self.calls[-1].pieces.append((call, removed, context))
                return
        self._pass_on(call if self.needs_calls else call.with_origin(module=name), removed, context)

    def _pass_on(self, call: WatchedCall, removed: Mask | None, context: Tensor | None) -> None:
        name = call.origin.module
        if self.callback is not None:
            if removed is not None and isinstance(call.attention, QK):
                call = changed(call.with_attention(mask=call.attention.mask & removed), lse=None)
            if self.contexts:
                assert context is not None
                call = changed(call, context=context.detach())
            self.callback(self.forwards.count - 1, len(self.layers), call)
        self.count(name)

    def count(self, name: str | None = None) -> None:
        """An attention call ran, in this module."""
        name = self._name("") if name is None else name
        self.forwards.layers.setdefault((name, self.times[name]), len(self.forwards.layers))
        self.times[name] += 1
        self.layers.append(name)
        self.forwards.calls += 1

    def _name(self, part: str) -> str:
        return ".".join(name for name in (self.calls[-1].name, part) if name)


def _in_part(name: str, reason: str) -> str:
    where = name or "the model itself"
    return f"cannot cut the attention in {where}, as a part of it is not understood: {reason}"


def _version(call: WatchedCall) -> int:
    """How often the model has written over the tensors of a call."""
    held = call.attention
    tensors = (held.q, held.k) if isinstance(held, QK) else (held.weights,)
    return sum(0 if t.is_inference() else t._version for t in tensors)


def is_leaf(module: nn.Module) -> bool:
    """Is this one of LEAVES or NAMES, and not a subclass of one?"""
    kind: Any = type(module)
    return _are_leaves(kind) and "forward" not in module.__dict__


@lru_cache(maxsize=1024)
def _are_leaves(kind: Any) -> bool:
    return kind in LEAVES or f"{kind.__module__}.{kind.__qualname__}" in NAMES

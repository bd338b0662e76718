"""Lost parts: modules that a block, a stack or a model holds, and that change nothing in what it gives.

Weights without a gradient are moved: where no output changes, whatever is computed with them is thrown away. A list of
layers may also hold one layer several times.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from regard.mistakes.search import same
from regard.school.check.compare.call_forms import other_inputs, random_tensor
from regard.school.check.explain.mistake_lines import line_with, nodes, return_line
from regard.school.check.explain.outputs import function_nodes
from regard.school.check.learner_code.protocol import CallJob, DriverJob, ModuleContents, ModuleInside, Observation
from regard.school.check.learner_code.subject import Subject
from regard.school.check.learner_code.text_hints import own_text
from regard.school.check.verdict import Finding, known
from regard.support.vocabulary import is_named_attention, is_named_head

if TYPE_CHECKING:
    from typing_extensions import Unpack

ATTENTION_LOST = known(
    "attention without effect",
    "Attention is what lets a token see others: what it gives must reach the output.",
    "x = x + self.attn(self.norm1(x))",
)
LAYER_LOST = known(
    "layer without effect",
    "Layers are stacked: each reads what the one before it gave.",
    "for layer in self.layers: x = layer(x)",
)
MASK_LOST = known(
    "mask not handed on",
    "Who passes a mask to a block expects that its attention hides something.",
    "x = x + self.attn(self.norm1(x), mask)",
    "mask",
)
NEVER_USED = known("module never used", "It is saved, moved and counted, and never trained.")
SHARED = {
    what: known(
        f"{what} share their weights",
        "[layer] * n holds one layer n times; a comprehension makes n of them.",
        "nn.ModuleList([Layer(d_model) for _ in range(n)])",
    )
    for what in ("heads", "layers")
}
_SAID_SHARED = r"(?i)(?<!no )(?<!not )(?<!without )(?<!no weight )"
_SAID_SHARED += r"(shar(e|ing)|\bt(ied|ying)\b|albert|universal|recurr|reus|loop(ed)?\b)"
_SAID_OFF = r"(?i)expert|\bmoe\b|rout(e|ing)|warm|fade|anneal|schedul|early.?exit|layer_?drop"
_SAID_UNUSED = r"(?i)unused|ignor|compatib|not used|signature|same interface|placeholder|del \w*mask"
_IS_MASK = re.compile(r"(?i)mask|pad|keep|valid|len(gth)?s$").search
_LAYER = re.compile(r"(.*?)\.(\d+)\.")


@dataclass(frozen=True)
class PartRun:
    """A run of a module or a part of it, with weights that are known."""

    subject: Subject
    job: DriverJob  # with one call
    x: Tensor
    weights: dict[str, Tensor]

    def run(self, tensors: Mapping[str, Tensor] | None = None, **changes: Unpack[DriverJob]) -> Observation:
        """What is seen with some other tensors, and another job."""
        others = other_inputs(self.x, 1) if self.x.dim() == 3 else {}
        state = {f"state.{name}": value for name, value in self.weights.items()}
        return self.subject.run({**self.job, **changes}, {**others, **state, "x": self.x, **(tensors or {})})

    def outputs(self, tensors: Mapping[str, Tensor] | None = None, **changes: Unpack[DriverJob]) -> list[list[Tensor]]:
        """What each call gives; nothing where it fails."""
        runs = self.run(tensors, **changes).runs
        return [one.outputs if one.failed is None else [] for one in runs] or [[]]


def shared_layers(contents: ModuleContents, subject: Subject) -> Iterator[Finding]:
    """Is a list of layers or heads one of them, several times? Its weights have names of which no module is known."""
    source, name = subject.source, subject.described["name"]
    again = {match[1] for p in contents.get("parameters", ()) if not p["owner"] and (match := _LAYER.match(p["name"]))}
    first = {one["path"]: one["name"] for one in contents.get("inside", ())}
    for path in sorted(again):
        if f"{path}.0" in first and f"{path}.1" not in first and not re.search(_SAID_SHARED, own_text(source, name)):
            what = "heads" if is_named_head(first[f"{path}.0"]) or is_named_head(path) else "layers"
            last = path.rpartition(".")[2]
            says = f"self.{last} holds one {first[f'{path}.0']} several times: all its {what} have the same weights."
            yield SHARED[what].found(says, line_with(source, rf"\bself\.{last}\s*=.*\*|\]\s*\*\s*\w"))


def unread_masks(subject: Subject, attention: ModuleInside) -> Iterator[Finding]:
    """Masks that a block takes and no line of it reads, though its attention takes one."""
    name = subject.described["name"]
    takes_one = any(_IS_MASK(p["name"]) for p in attention["call"])
    forward = next(function_nodes(subject.source, name), None)
    if forward is None or not takes_one or re.search(_SAID_UNUSED, own_text(subject.source, name)):
        return
    read = {node.id for node in ast.walk(forward) if isinstance(node, ast.Name)}
    called = {node.attr for node in ast.walk(forward) if isinstance(node, ast.Attribute)}
    if attention["path"] not in called:  # a method of its own may make the mask
        return
    for p in subject.described["call"]:
        if _IS_MASK(p["name"]) and p["name"] not in read and not forward.args.kwarg:
            yield MASK_LOST.found(f"{name} takes {p['name']}, and no line of it reads it.", forward.lineno)


def lost_parts(run: PartRun, out: Tensor, subject: Subject) -> Iterator[Finding]:
    """What has weights and changes nothing: a layer of a stack, an attention, a module that is never called."""
    source, name = subject.source, subject.described["name"]
    text = own_text(source, name)
    seen, lost, kept = _without_effect(run, out)
    if not lost or re.search(_SAID_OFF, text):
        return
    inside = {one["path"]: one["name"] for one in seen.contents.get("inside", ())}
    layers = [path for path in lost if path in inside and _is_in_stack(path, kept, subject)]
    reads = {node.attr for node in nodes(source, ast.Attribute) if isinstance(node.ctx, ast.Load)}
    unread = [path for path in inside if reads and "." not in path and path not in reads]
    if layers:
        last = layers[0].rpartition(".")[0].rpartition(".")[2]
        loop = line_with(source, rf"for .* in .*self\.{last}\b.*:\s*$")
        says = f"The weights of {layers[0]} change nothing: what this layer gives is not used."
        yield LAYER_LOST.found(says, loop + 1 if loop else line_with(source, rf"self\.{last}\b(?!\s*=)"))
    elif _lacks_attention(run, name, text, inside):
        yield from _lost_attention(run, lost, unread, inside)
    elif unused := [path for path in unread if any(f"{one}.".startswith(f"{path}.") for one in lost)]:
        says = f"self.{unused[0]} is made and never used."
        yield NEVER_USED.found(says, line_with(source, rf"self\.{unused[0]}\b"))


def _lost_attention(run: PartRun, lost: list[str], unread: list[str], inside: Collection[str]) -> Iterator[Finding]:
    """Of attention that does not reach the output, with the line of the first module that is lost."""
    source, calls = run.subject.source, run.run(record=True).forward
    if not unread and not any("softmax" in call.name for call in calls):
        return  # an argument may switch it on
    path = next((one for one in (*unread, *lost) if one in inside), "")
    line = line_with(source, rf"self\.{path}\(" if path not in unread else rf"self\.{path}\b") if path else 0
    says = f"No token sees another: {', '.join(lost[:4])} change{'s' * (len(lost) == 1)} nothing in the output."
    yield ATTENTION_LOST.found(says, line or return_line(source, [call for call in calls if call.line]))


def _is_in_stack(path: str, kept: list[str], subject: Subject) -> bool:
    """Is it one of a list of layers, of which others are used? A list from which the caller chooses is no stack."""
    stack, _, number = path.rpartition(".")
    chosen = re.findall(rf"\b{stack.rpartition('.')[2]}\[([\w.]+)", subject.source) if number.isdigit() else ()
    given = [p["name"] for p in subject.described["call"]]
    is_chosen = any("." in one or one in given for one in chosen)
    return number.isdigit() and not is_chosen and any(one.startswith(f"{stack}.") for one in kept)


def _lacks_attention(run: PartRun, name: str, text: str, inside: Mapping[str, str]) -> bool:
    """Does it claim to be attention, or to hold it, and no token sees another?"""
    is_named = any(map(is_named_attention, (name, *inside.values())))
    return (is_named or bool(re.search(r"(?i)softmax|atten[dt]", text))) and not _is_mixed(run)


def _without_effect(run: PartRun, out: Tensor) -> tuple[Observation, list[str], list[str]]:
    """The modules whose weights change nothing, and those whose weights change something, by path."""
    if bool(out.isnan().any()):
        return Observation(), [], []
    seen = run.run({"cotangent": random_tensor(11, *out.shape)}, gradients=True)
    still = [name.removeprefix("state.") for name in seen.contents.get("without_gradient", ()) if seen.gradients]
    groups = _weights_by_part(seen.contents)
    lost = [path for path, names in groups.items() if all(name in still for name in names)]
    if not lost:
        return seen, [], []
    call = run.job["calls"][0]
    moved: list[CallJob] = [{**call, "fresh": True, "state": {n: f"moved.{n}" for n in groups[path]}} for path in lost]
    changed = run.outputs(
        {f"moved.{name}": value.flip(-1) + 0.1 for name, value in run.weights.items()}, calls=[call, *moved]
    )
    lost = [
        path for path, outs in zip(lost, changed[1:], strict=True)
        if outs and len(outs) == len(changed[0]) and all(map(same, outs, changed[0]))
    ]  # fmt: skip
    return seen, lost, [path for path in groups if path not in lost]


def _weights_by_part(contents: ModuleContents) -> dict[str, list[str]]:
    """The names of matrices, by the module or the layer of a stack that they are in."""
    groups: dict[str, list[str]] = {}
    for p in contents.get("parameters", ()):
        name, match = p["name"], _LAYER.match(p["name"])
        if len(p["shape"]) > 1:
            groups.setdefault(f"{match[1]}.{match[2]}" if match else name.split(".")[0], []).append(name)
    return groups


def _is_mixed(run: PartRun) -> bool:
    """Does the first or the last token of a text change when all others do? So it is where it could not be tried."""
    first, others = run.outputs()[0], run.x.roll(1, 0).roll(1, 1).flip(-1)
    for t in (0, run.x.shape[1] - 1):
        moved = others.clone()
        moved[0, t] = run.x[0, t]
        outs = run.outputs({"x": moved})[0]
        pairs = [(a[0, t], b[0, t]) for a, b in zip(first, outs, strict=False) if a.shape[:2] == run.x.shape[:2]]
        if not pairs or not all(same(a, b) for a, b in pairs):
            return True
    return False

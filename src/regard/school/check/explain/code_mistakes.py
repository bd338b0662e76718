"""Code mistakes: what the text of a class and one run of it show together, where values alone have no name for it.

Neither is proof by itself: a line may never run, and numbers do not say why they are there.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping

import torch

from regard.school.check.compare.experiment import Attempt, Experiment
from regard.school.check.explain.mistake_lines import nodes
from regard.school.check.learner_code.protocol import Observation
from regard.school.check.verdict import Finding, known

MADE = known(
    "layer made in forward",
    "What is made in forward has new random weights at every call, which are neither trained nor saved.",
    "self.out_proj = nn.Linear(d_out, d_out)  # in __init__; forward only calls it",
)
RESET = known(
    "parameters re-initialised in forward",
    "At every call, what was learned is replaced by random numbers.",
    "self.reset_parameters()  # in __init__, not in forward",
)
IN_LIST = known(
    "parameters in a plain list",
    "torch finds parameters in modules, nn.ModuleList, nn.ModuleDict and nn.ParameterList; those in a "
    "list, a tuple or a "
    "dict are not trained, moved or saved.",
    "self.heads = nn.ModuleList([...])  # or nn.ModuleDict, nn.ParameterList, nn.ParameterDict",
)
NOT_A_PARAMETER = known(
    "weight that is no parameter",
    "Only an nn.Parameter is trained, moved and saved; a tensor that is an attribute is not.",
    "self.W_query = nn.Parameter(torch.randn(d_in, d_out))",
)
HALF = known(
    "float16 inside",
    "float16 has three digits and ends at 65504: scores lose precision, and large ones become infinite.",
    "scores = queries @ keys.mT  # in the type of x; autocast chooses where less is enough",
)
NOT_ASSIGNED = known(
    "result not assigned",
    "masked_fill returns a new tensor and leaves the old one as it is; masked_fill_ changes it in place.",
    "scores = scores.masked_fill(future, -torch.inf)",
    "mask",
)
_LAYERS = ("Linear", "Parameter", "Conv1d", "Conv2d", "Embedding", "Bilinear", "LazyLinear", "MultiheadAttention")
_RANDOM = ("uniform_", "normal_", "kaiming_uniform_", "kaiming_normal_", "xavier_uniform_", "xavier_normal_")
_TENSORS = ("randn", "rand", "empty", "zeros", "randn_like", "Parameter")
_HALF = (torch.float16, torch.bfloat16)
_HIDES = ("masked_fill", "tril", "triu", "where", "masked_scatter")


def mistakes_in_code(attempt: Attempt) -> list[Finding]:
    """The mistakes of a layer that could not be compared, or that nothing explains."""
    class_node = next((one for one in nodes(attempt.subject.source, ast.ClassDef) if one.name == _name(attempt)), None)
    if class_node is None:
        return []
    if found := [*_in_lists(class_node, attempt), *_not_parameters(class_node, attempt)][:1]:
        return found
    if isinstance(attempt, Experiment):
        lines = {call.line for call in attempt.seen.forward}
        return [*_made_in_forward(class_node, lines), *_reset_in_forward(class_node, attempt.seen)][:1]
    failed = 0 if attempt.failed is None else attempt.failed.line
    ran = [one for one in _methods(class_node, False) if one.lineno <= failed <= (one.end_lineno or 0)]
    return list(_made_in_forward(class_node, {line for one in ran for line in range(one.lineno, failed + 1)}))[:1]


def not_assigned(source: str, seen: Observation) -> int:
    """The line of a call that hides scores and whose result is used nowhere; 0 where there is none."""
    used = {number for call in seen.recorded for number in call.inputs}
    unused = {call.line for i, call in enumerate(seen.recorded) if i >= seen.built and i not in used}
    statements = (one for one in nodes(source, ast.Expr) if isinstance(one.value, ast.Call))
    return next((one.lineno for one in statements if one.lineno in unused and _called(one.value) in _HIDES), 0)


def _name(attempt: Attempt) -> str:
    return attempt.subject.described["name"]


def _called(node: ast.AST) -> str:
    function = getattr(node, "func", None)
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _methods(one: ast.ClassDef, is_init: bool) -> Iterator[ast.FunctionDef]:
    for method in one.body:
        if isinstance(method, ast.FunctionDef) and (method.name == "__init__") == is_init:
            yield method


def _made_in_forward(one: ast.ClassDef, lines: set[int]) -> Iterator[Finding]:
    """Layers with weights that are made on one of the lines that ran."""
    for node in (node for method in _methods(one, False) for node in ast.walk(method)):
        if isinstance(node, ast.Call) and _called(node) in _LAYERS and lines & _lines(node):
            says = f"{ast.unparse(node.func)}(…) makes new random weights whenever forward runs."
            yield MADE.found(says, node.lineno)


def _lines(node: ast.expr | ast.stmt) -> set[int]:
    return set(range(node.lineno, (node.end_lineno or node.lineno) + 1))


def _reset_in_forward(one: ast.ClassDef, seen: Observation) -> Iterator[Finding]:
    drawn = {call.line for call in seen.forward if call.name in _RANDOM}
    methods = list(_methods(one, False))
    inside = {method.name for method in methods if method.name != "forward" and drawn & _lines(method)}
    for node in (node for method in methods if method.name == "forward" for node in ast.walk(method)):
        if isinstance(node, ast.Call) and (
            _called(node) in inside or (_called(node) in _RANDOM and drawn & _lines(node))
        ):
            yield RESET.found("Weights get new random numbers whenever forward runs.", node.lineno)


def _in_lists(one: ast.ClassDef, attempt: Attempt) -> Iterator[Finding]:
    """Modules or weights in a list, tuple or dict that is an attribute, none of which torch knows of."""
    contents = attempt.observation.contents
    if "parameters" not in contents or re.search(
        r"setattr|add_module|register_module|register_parameter", ast.unparse(one)
    ):
        return
    known_to_torch = [p["name"] for p in contents["parameters"]]
    classes = {node.name for node in nodes(attempt.subject.source, ast.ClassDef)}
    makers = {*_LAYERS, *_TENSORS, *classes, *_helpers(one)}
    statements = [node for method in _methods(one, True) for node in ast.walk(method) if isinstance(node, ast.stmt)]
    plain = _plain(statements)
    for statement in statements:
        name, value = _kept(statement, plain)
        made = set() if value is None else {_called(node) for node in ast.walk(value)}
        if name and made & makers and not any(p.startswith(f"{name}.") for p in known_to_torch):
            says = f"self.{name} is a plain list, tuple or dict: torch does not know of what is in it."
            yield IN_LIST.found(says, statement.lineno)


def _plain(statements: Iterable[ast.stmt]) -> dict[str, ast.expr]:
    """The plain lists, tuples and dicts, by what they are assigned to."""
    assigned = [node for node in statements if isinstance(node, ast.Assign) and isinstance(node.value, _PLAIN)]
    return {ast.unparse(node.targets[0]): node.value for node in assigned}


def _helpers(one: ast.ClassDef) -> set[str]:
    """Names of functions inside __init__, such as init = lambda: torch.randn(d, d)."""
    nodes_inside = [node for method in _methods(one, True) for node in ast.walk(method)]
    named = [node for node in nodes_inside if isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda)]
    return {target.id for node in named for target in node.targets if isinstance(target, ast.Name)}


_PLAIN = (ast.List, ast.Tuple, ast.Dict, ast.ListComp, ast.DictComp)


def _kept(statement: ast.AST, plain: Mapping[str, ast.expr]) -> tuple[str, ast.expr | None]:
    """The attribute that a statement puts a plain list into, or something into a plain list; and what."""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target, value = statement.targets[0], statement.value
        value = plain.get(value.id, value) if isinstance(value, ast.Name) else value
        is_kept = _is_own(target) and isinstance(target, ast.Attribute) and isinstance(value, _PLAIN)
        return (getattr(target, "attr", ""), value) if is_kept else ("", None)
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call) and _called(call) == "append" and isinstance(call.func, ast.Attribute) and call.args:
        owner = call.func.value
        return (
            (owner.attr, call.args[0])
            if isinstance(owner, ast.Attribute) and ast.unparse(owner) in plain
            else ("", None)
        )
    return "", None


def _is_own(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def _not_parameters(one: ast.ClassDef, attempt: Attempt) -> Iterator[Finding]:
    """Tensors that are attributes and are multiplied, where the layer has no weights."""
    contents = attempt.observation.contents
    loose = {t["name"]: t["shape"] for t in contents.get("loose", ()) if not t["is_mask"] and len(t["shape"]) > 1}
    if len(loose) < 2 or len([p for p in contents.get("parameters", ()) if len(p["shape"]) > 1]) > 1:
        return
    for node in (node for method in _methods(one, True) for node in ast.walk(method)):
        if isinstance(node, ast.Assign) and any(_is_own(t) and getattr(t, "attr", "") in loose for t in node.targets):
            names = ", ".join(f"self.{name}" for name in loose)
            yield NOT_A_PARAMETER.found(f"{names}: plain tensors, of which torch does not know.", node.lineno)


def half_precision(seen: Observation) -> Finding | None:
    """Where a layer computes in float16 or bfloat16, though its input is in float64."""
    first = next((call for call in seen.forward if call.value.dtype in _HALF and call.line), None)
    if first is None:
        return None
    return HALF.found(f"Something is computed in {str(first.value.dtype).removeprefix('torch.')}.", first.line)

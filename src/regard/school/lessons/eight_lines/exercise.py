"""The same layer in eight lines."""

import ast
import textwrap

from regard.school.exercises import cat
from regard.school.exercises import Fault, Judged, Layer

MOST, WIDEST = 8, 110


def judge(text):
    """Lines with code, without the def, the docstring and comments."""
    function = ast.parse(textwrap.dedent(text)).body[0]
    body = [one for one in function.body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]
    lines = text.splitlines()[body[0].lineno - 1 :]
    lines = [line for line in lines if line.strip() and not line.strip().startswith("#")]
    if len({one.lineno for one in body}) < len(body):
        return Fault("two statements in a line", "Two statements stand in one line, with a semicolon between them.")
    if longest := [line for line in lines if len(line) > WIDEST]:
        return Fault(
            "line too long", f"A line has {len(longest[0])} characters; at most {WIDEST}: {longest[0].strip()[:40]} …"
        )
    if len(lines) > MOST:
        return Fault(
            f"more than {MOST} lines",
            f"It is right, and forward has {len(lines)} lines; {len(lines) - MOST} to go.",
            "Look for lines that do the same to q, k and v, and for tensors that are used only once, in the next line.",
        )
    return None


parts = [Layer("MultiHeadAttention", causal=True, plain=True), Judged("forward_text", None, judge)]

picture = cat.of_layer("MultiHeadAttention", "The same two heads, out of eight lines of yours:")

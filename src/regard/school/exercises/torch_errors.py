"""What the commonest errors of torch and Python mean, for a learner: a name, and a sentence with the numbers."""

from __future__ import annotations

import re
from collections.abc import Callable

Explain = Callable[[re.Match[str]], str]


def _inner(match: re.Match[str]) -> str:
    a, b, c, d = match.groups()
    fits = {b == d: "The second one, transposed, would fit.", a == d: "In the other order they would fit."}
    remedy = fits.get(True, "")
    return f"It multiplies ({a}, {b}) by ({c}, {d}): the {b} and the {c} must be the same number. {remedy}".strip()


def _batched(match: re.Match[str]) -> str:
    batch, inner, other_batch, rows = match.groups()
    if batch != other_batch:
        return (
            f"It multiplies {batch} matrices by {other_batch}: `@` takes them one by one, so they must be equally many."
        )
    says = f"It multiplies matrices of {inner} columns by matrices of {rows} rows"
    return f"{says}: the two must be the same number. Is one of them to be transposed, or another one meant?"


def _matched(match: re.Match[str]) -> str:
    a, b, axis = match.groups()
    says = f"Two tensors meet number by number, and one has {a} along axis {axis}, the other {b}"
    return f"{says}. Axes are matched from the right; an axis of size 1 is repeated."


TABLE: tuple[tuple[str, str, Explain], ...] = (
    (
        "inner sizes differ",
        r"mat1 and mat2 shapes cannot be multiplied \((\d+)x(\d+) and (\d+)x(\d+)\)",
        _inner,
    ),
    (
        "inner sizes differ",
        r"two dimensions of batch2 tensor to be: \[(\d+), (\d+)\] but got: \[(\d+), (\d+)\]",
        _batched,
    ),
    (
        "sizes do not match",
        r"The size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\) at non-singleton dimension (\d+)",
        _matched,
    ),
    (
        "another number of entries",
        r"shape '\[(.+)\]' is invalid for input of size (\d+)",
        lambda m: f"view or reshape asks for ({m[1]}), and there are {m[2]} numbers; the sizes must multiply to that.",
    ),
    (
        "view without contiguous",
        r"view size is not compatible",
        lambda m: "After a transpose the numbers are not in reading order: contiguous() before view, or reshape.",
    ),
    (
        "index too large",
        r"index (-?\d+) is out of bounds for dimension (\d+) with size (\d+)",
        lambda m: f"Axis {m[2]} has {m[3]} entries, 0 to {int(m[3]) - 1}, and entry {m[1]} is asked for.",
    ),
    (
        "no such axis",
        r"Dimension out of range \(expected to be in range of \[-?\d+, (\d+)\], but got (-?\d+)\)",
        lambda m: f"The tensor has the axes 0 to {m[1]}; axis {m[2]} is asked for.",
    ),
    (
        "parts of different sizes",
        r"Sizes of tensors must match except in dimension (\d+)",
        lambda m: f"Only along axis {m[1]} may the parts that torch.cat joins differ.",
    ),
    (
        "different numbers of axes",
        r"same number of dimensions: got (\d+) and (\d+)",
        lambda m: f"One has {m[1]} axes, the other {m[2]}.",
    ),
    (
        "one number needed",
        r"Boolean value of Tensor with more than one value|only one element tensors can be converted|"
        r"a Tensor with \d+ elements cannot be converted",
        lambda m: "There are several numbers where one is needed: take one of them, or their sum, mean or maximum.",
    ),
    (
        "no gradient",
        r"does not require grad and does not have a grad_fn",
        lambda m: "The result has no way back to the weights: no_grad, detach, item or argmax cuts it.",
    ),
    (
        "called too early or too late",
        r"'(\w+)' object is not callable",
        lambda m: f"A {m[1]} stands before the parentheses, not a function.",
    ),
    (
        "a list instead of a tensor",
        r"'(list|tuple)' object has no attribute",
        lambda m: f"It is a {m[1]}; torch.stack, torch.cat or torch.tensor makes a tensor.",
    ),
    (
        "no such name",
        r"^(?:NameError: name|AttributeError: .* has no attribute) '(\w+)'",
        lambda m: f"Is {m[1]} written right, and is it made before?",
    ),
    (
        "None instead of a value",
        r"NoneType",
        lambda m: "Something is None: a function without return gives that.",
    ),
    (
        "other arguments",
        r"missing \d+ required positional|takes \d+ positional|unexpected keyword|got multiple values|needs an arg",
        lambda m: "The call has other arguments than the function takes.",
    ),
    (
        "different dtypes",
        r"expected (?:scalar type|m1 and m2 to have the same dtype|.* to have the same dtype)",
        lambda m: "The two tensors have different dtypes; .float() or .to(x.dtype) changes one.",
    ),
    (
        "a float for a whole number",
        r"must be tuple of ints|'float' object cannot be interpreted as an integer",
        lambda m: "A size or an index is a float: / gives one, // a whole number.",
    ),
    (
        "byte out of range",
        r"bytes must be in range\(0, 256\)",
        lambda m: "A byte is a number from 0 to 255; tokens from 256 on stand for several bytes.",
    ),
)


def explain_error(message: str) -> tuple[str, str]:
    """A name for an error and what it means; "fails" and "" for one that is not known.

    >>> explain_error("IndexError: index 7 is out of bounds for dimension 0 with size 5")
    ('index too large', 'Axis 0 has 5 entries, 0 to 4, and entry 7 is asked for.')
    """
    for name, pattern, explain in TABLE:
        if match := re.search(pattern, message):
            return name, explain(match)
    return "fails", ""

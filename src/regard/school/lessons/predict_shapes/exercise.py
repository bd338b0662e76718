"""Which line of a program fails?"""

import torch

from regard.school.exercises import Fault, Function, Judged, Wrong

PROGRAMS = {
    "program_1": """q = W(x)
q = q.view(4, 100, 64, 64)
q = q.transpose(1, 2)
scores = q @ q.mT
out = scores.softmax(-1) @ q""",
    "program_2": """q = W(x)
q = q.view(4, 100, 12, 64)
q = q.transpose(1, 2)
scores = q @ q
out = scores.softmax(-1) @ q""",
    "program_3": """q = W(x)
q = q.view(4, 100, 12, 64)
scores = q @ q.mT
q = scores.softmax(-1) @ q
out = q.view(4, 100, 768)""",
    "program_4": """q = W(x)
q = q.view(4, 100, 12, 64)
q = q.transpose(1, 2)
q = (q @ q.mT).softmax(-1) @ q
out = q.transpose(1, 2).view(4, 100, 768)""",
    "program_5": """q = W(x.mT)
q = q.view(4, 100, 12, 64)
q = q.transpose(1, 2)
q = (q @ q.mT).softmax(-1) @ q
out = q.transpose(1, 2).flatten(2)""",
}
# What to look at, where the line is right and the shape is not, or the other way round.
WHY = {
    "program_1": "view keeps the number of elements: 100 · 768 = 100 · 12 · 64. How many are 100 · 64 · 64?",
    "program_2": "A product (…, T, D) @ (…, T, D) needs D = T.",
    "program_3": "Without a transpose, the last two axes are the 12 heads of one token: shapes fit, and heads are compared.",
    "program_4": "After transpose the heads of a token are not side by side in memory, and view copies nothing: contiguous() first.",
    "program_5": "W takes 768 numbers in the last axis. What is the last axis of x.mT?",
}


def outcome(text):
    """The line that fails and the shape of q before it; 0 and the shape of out if none does. It is run."""
    with torch.device("meta"):
        values = {"x": torch.zeros(4, 100, 768), "W": torch.nn.Linear(768, 768)}
        values["q"] = values["x"]
        for number, line in enumerate(text.splitlines(), 1):
            before = tuple(values["q"].shape)
            try:
                exec(line, values)
            except RuntimeError:
                return number, before
    return 0, tuple(values["out"].shape)


def judge_program(name):
    line, shape = outcome(PROGRAMS[name])

    def judge(answer):
        try:
            mine, sizes = int(answer[0]), tuple(int(one) for one in answer[1])
        except (TypeError, ValueError, IndexError):
            return Fault("not a line and a shape", f"{name} is {answer!r}; write (line, shape), as (3, (4, 100, 768)).")
        where = f"line {mine}" if mine else "no line"
        if mine != line:
            if not 0 <= mine <= 5:
                return Fault(
                    "no such line", f"{name} has lines 1 to 5; {mine} is none of them. 0 says that none fails."
                )
            if mine == 0:
                return Fault("it fails", f"{name} does not run to its end.", WHY[name])
            if line == 0 or mine < line:
                why = f"{name}: {where} runs. Which shapes does it join, or cut?"
                return Fault("the line runs", why, WHY[name] if line == 0 else "")
            return Fault("it fails before", f"{name} does not come as far as {where}.", WHY[name])
        if sizes != shape:
            of = "out" if line == 0 else f"q before line {line}"
            return Fault("another shape", f"{name}: {where} is right; {of} does not have the shape {sizes}.")
        return None

    return judge


def shapes(fits):
    def make(random):
        sizes = torch.tensor([2, 3, 5, 7, 11, 13])[torch.randperm(6, generator=random)].tolist()
        B, H, T, D, S, other = sizes
        return (
            ((B, H, T, D), (B, H, D, S))
            if fits == "yes"
            else (((B, H, T, D), (B, H, S, D)) if fits == "inner" else ((B, H, T, D), (B, other, D, S)))
        )

    return make


def right(a, b):
    return (*a[:-1], b[-1]) if a[:-2] == b[:-2] and a[-1] == b[-2] else None


def never_fails(a, b):
    return (*a[:-1], b[-1])


parts = [
    *(Judged(name, None, judge_program(name)) for name in PROGRAMS),
    Function(
        "product",
        shapes("yes"),
        right,
        wrong=[
            Wrong("the shape of a", "The last size comes from b: (…, T, D) @ (…, D, S) is (…, T, S).", lambda a, b: a),
            Wrong(
                "the inner axis stays",
                "The inner axis is summed away: (…, T, D) @ (…, D, S) is (…, T, S).",
                lambda a, b: (*a, b[-1]),
            ),
            Wrong("only two axes", "The axes before the last two stay.", lambda a, b: (a[-2], b[-1])),
            Wrong("columns before rows", "Rows come from a, columns from b.", lambda a, b: (*a[:-2], b[-1], a[-2])),
            Wrong("always fails", "These two fit: the inner axes are equal, and those before.", lambda a, b: None),
        ],
    ),
    Function(
        "product",
        shapes("inner"),
        right,
        wrong=[
            Wrong(
                "inner axes not compared",
                "{0} @ {1} fails: the last axis of a must be as long as the one before the last of b.",
                never_fails,
            ),
            Wrong(
                "something else than None",
                "{0} @ {1} fails; then return None, as the task says.",
                lambda a, b: (),
            ),
        ],
    ),
    Function(
        "product",
        shapes("before"),
        right,
        wrong=[
            Wrong(
                "axes before not compared",
                "{0} @ {1} fails: the axes before the last two differ.",
                never_fails,
            ),
        ],
    ),
]

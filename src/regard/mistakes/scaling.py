"""Mistakes in dividing the scores by √head_dim."""

from collections.abc import Callable

from torch import Tensor

from regard.mistakes.formula import Case
from regard.mistakes.mistake import Mistake, with_heads

_WHY = (
    "A score is a sum of head_dim products, so its variance grows with head_dim; divided by √head_dim it is about 1, "
    "and the softmax neither saturates nor turns flat."
)
_FIX = "scores = scores / head_dim**0.5"


def _wrong(
    name: str,
    factor: Callable[[Case], float],
    says: str,
    applies: Callable[[Case], bool] = lambda case: case.scaled,
    rare: bool = False,
    why: str = _WHY,
    fix: str = _FIX,
) -> Mistake:
    def scale(scores: Tensor, case: Case) -> Tensor:
        return scores * factor(case)

    return Mistake(name, "scale", scale, "scaled", says, why, fix, applies, rare)


MISTAKES = (
    _wrong(
        "scale by √d_model",
        lambda case: case.width**-0.5,
        "The scores are divided by √{width}, the width of all heads together; it is √head_dim = √{head_dim}.",
        lambda case: case.scaled and with_heads(case),
    ),
    _wrong(
        "scale by √d_in",
        lambda case: case.x.shape[-1] ** -0.5,
        "The scores are divided by √{d_in}, the width of x; it is √head_dim = √{head_dim}.",
        lambda case: case.scaled and case.x.shape[-1] not in (case.width, case.head_dim),
    ),
    _wrong(
        "scale inverted",
        lambda case: case.head_dim**0.5,
        "The scores are multiplied by √{head_dim}; they are divided by it.",
    ),
    _wrong("no scale", lambda case: 1.0, "The scores are not divided by √head_dim = √{head_dim}."),
    _wrong("missing root", lambda case: 1 / case.head_dim, "The scores are divided by {head_dim}; it is √{head_dim}."),
    _wrong(
        "missing root of d_model",
        lambda case: 1 / case.width,
        "The scores are divided by {width}, the width of all heads together; it is √head_dim = √{head_dim}.",
        lambda case: case.scaled and with_heads(case),
        rare=True,
    ),
    _wrong(
        "scale by √num_heads",
        lambda case: case.num_heads**-0.5,
        "The scores are divided by √{num_heads}, the number of heads; it is √head_dim = √{head_dim}.",
        lambda case: case.scaled and with_heads(case) and case.num_heads != case.head_dim,
    ),
    _wrong(
        "scale by √T",
        lambda case: case.x.shape[1] ** -0.5,
        "The scores are divided by √{T}, the number of tokens; it is √head_dim = √{head_dim}.",
        lambda case: (
            case.scaled and case.x.shape[1] not in (1, case.head_dim, case.width, case.num_heads, case.x.shape[-1])
        ),
    ),
    _wrong(
        "scores ignored",
        lambda case: 0.0,
        "Every visible token gets the same weight, a plain average: the scores change nothing.",
        rare=True,
        why="The weights are the softmax of the scores: a token attends most to the keys that are most like its query.",
        fix="weights = torch.softmax(scores, dim=-1)",
        applies=lambda case: case.x.shape[1] > 1,
    ),
    _wrong(
        "scale is a constant",
        lambda case: 1.0 if case.factor is None else case.factor,
        "The scores are {factor}, whatever the size of the heads; here it is √head_dim = √{head_dim}.",
        lambda case: case.scaled and case.factor is not None,
        why="A number that fits one size is wrong for every other: compute it from head_dim.",
    ),
    _wrong(
        "scaled where nothing is",
        lambda case: case.x.shape[-1] ** -0.5,
        "The scores are divided by √{d_in}; simplified attention takes them as they are.",
        lambda case: not case.scaled,
        why="The scale comes with the projections, one rung later.",
        fix="weights = torch.softmax(scores, dim=-1)",
    ),
)

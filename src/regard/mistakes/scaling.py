"""Mistakes in dividing the scores by √head_dim."""

from collections.abc import Callable

import torch
from torch import Tensor

from regard.mistakes.formula import Case, compare_all
from regard.mistakes.mistake import Mistake, with_heads

_WHY = (
    "A score is a sum of head_dim products. If queries and keys hold independent numbers of mean 0 and variance 1, its "
    "variance is head_dim; divided by √head_dim it is 1, and the softmax neither saturates nor turns flat."
)
_FIX = "scores = scores / head_dim**0.5"
_TEMPERED = r"(?i)temperature|\btau\b|cosine|muP|\bµP|soft[- _]?cap|logit_scale"
_UNSCALED = (
    rf"{_TEMPERED}|unscaled|(no|not|without|un)[- ]?(the |a )?(1/sqrt|sqrt|scal(e|ing|ed)\b)|\bT5|luong|"
    r"(weights|queries|init\w*) (are|is) (already )?(pre-?)?scaled|simplified"
)
_INTEGER_WHY = "// rounds down to a whole number: 1 // √d is 0, and 1 // 2 is 0."


def _wrong(
    name: str,
    factor: Callable[[Case], float],
    says: str,
    applies: Callable[[Case], bool] = lambda case: case.scaled,
    rare: bool = False,
    why: str = _WHY,
    fix: str = _FIX,
    **options: str,
) -> Mistake:
    def scale(scores: Tensor, case: Case) -> Tensor:
        return scores * factor(case)

    options = {"announced": _TEMPERED, **options}
    return Mistake(name, "scale", scale, "scaled", says, why, fix, applies, rare, **options)  # type: ignore[arg-type]


def _on_wrong_axes(q: Tensor, k: Tensor, case: Case, axes: tuple[int, int]) -> Tensor:
    """Queries with keys with other axes than the last two exchanged; without heads, the batch is one of them."""
    if case.num_heads > 1:
        return q @ k.transpose(*axes)
    return (q[:, 0] @ k[:, 0].transpose(*axes))[:, None]


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
    _wrong(
        "no scale",
        lambda case: 1.0,
        "The scores are not divided by √head_dim = √{head_dim}.",
        announced=_UNSCALED,
    ),
    _wrong("missing root", lambda case: 1 / case.head_dim, "The scores are divided by {head_dim}; it is √{head_dim}."),
    _wrong(
        "scaled twice",
        lambda case: 1 / case.head_dim,
        "The scores are divided by √{head_dim} twice; once is enough.",
        why="Divided twice, the scores are too small, and the softmax is nearly flat: scaled_dot_product_attention "
        "divides by √head_dim itself.",
    ),
    *(
        _wrong(
            f"integer division in the scale: it is {factor:g}",
            lambda case, factor=factor: factor,  # type: ignore[misc]
            says,
            why=_INTEGER_WHY,
            family="integer division",
            written=r"\b1(\.0*)?\s*//",
        )
        for factor, says in (
            (0.0, "The scale is 1 // √{head_dim}, which is 0: every visible token gets the same weight."),
            (1.0, "The scale is a whole number, 1: the scores are not divided by √head_dim = √{head_dim}."),
        )
    ),
    Mistake(
        "integer division of the scores",
        "scale",
        lambda scores, case: torch.floor(scores / case.head_dim**0.5),
        "scaled",
        "The scores are divided by √{head_dim} with //, which makes whole numbers of them.",
        _INTEGER_WHY,
        _FIX,
        lambda case: case.scaled,
        family="integer division",
        written=r"//|floor",
    ),
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
        why="The weights are the softmax of the scores: a larger dot product with the query is a larger weight.",
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
    Mistake(
        "scores with the wrong sign",
        "compare",
        lambda q, k, case: -compare_all(q, k, case),
        "scores",
        "The scores are negated: a token attends most to the keys that are least like its query.",
        "The softmax gives the largest score the largest weight.",
        "scores = queries @ keys.mT",
        lambda case: case.x.shape[1] > 1,
        written=r"-\s*[\w(.]",
        announced=r"(?i)distance|dissimilar|repel|negative",
    ),
    *(
        Mistake(
            name,
            "compare",
            act,
            "scores",
            says,
            "A score is the sum of the products of a query and a key, number by number.",
            "scores = queries @ keys.transpose(-2, -1)",
            applies,
            written=written,
            rare=True,
        )
        for name, act, says, applies, written in (
            (
                "einsum letters: query and key summed apart",
                lambda q, k, case: q.sum(-1)[..., None] * k.sum(-1)[..., None, :],
                "The letters of head_dim differ: the numbers of each query are summed, and those of each "
                "key, and the sums "
                "are multiplied.",
                lambda case: case.head_dim > 1,
                r"einsum",
            ),
            (
                "keys not transposed",
                lambda q, k, case: q @ k,
                "The queries are multiplied by the keys as they are, (T, D) @ (T, D); that runs only "
                "where there are as many "
                "tokens as numbers in a head.",
                lambda case: case.x.shape[1] == case.head_dim,
                "",
            ),
            *(
                (
                    "keys transposed on the wrong axes",
                    lambda q, k, case, axes=axes: _on_wrong_axes(q, k, case, axes),
                    "The keys are transposed on other axes than the last two, which mixes texts or heads with tokens.",
                    lambda case: case.x.shape[1] == case.head_dim,
                    r"\.T\b|\.t\(|transpose|permute|swapaxes|movedim",
                )
                for axes in ((-3, -2), (-3, -1))
            ),
        )
    ),
)

"""Mistakes in dividing the scores by √head_dim."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from regard.mistakes.formula import Given
from regard.mistakes.mistake import Mistake, with_heads

_WHY = (
    "A score is a sum of head_dim products, so its variance grows with head_dim; divided by √head_dim it is about 1, "
    "and the softmax neither saturates nor turns flat."
)
_FIX = "scores = scores / head_dim**0.5"


def _scaled(given: Given) -> bool:
    return given.scaled


def _unscaled(given: Given) -> bool:
    return not given.scaled


def _wide(given: Given) -> bool:
    return given.scaled and given.num_heads > 1


def _by_d_in(given: Given) -> bool:
    d_in = given.x.shape[-1]
    return given.scaled and d_in not in (given.width, given.head_dim)


def _wrong(
    name: str, factor: Callable[[Given], float], says: str, applies: Callable[[Given], bool] = _scaled
) -> Mistake:
    def scale(scores: Tensor, given: Given) -> Tensor:
        return scores * factor(given)

    return Mistake(name, "scale", scale, "scaled", says, _WHY, _FIX, applies)


MISTAKES = (
    _wrong(
        "scale by √d_model",
        lambda given: given.width**-0.5,
        "The scores are divided by √{width}, the width of all heads together; it is √head_dim = √{head_dim}.",
        _wide,
    ),
    _wrong(
        "scale by √d_in",
        lambda given: given.x.shape[-1] ** -0.5,
        "The scores are divided by √{d_in}, the width of x; it is √head_dim = √{head_dim}.",
        _by_d_in,
    ),
    _wrong(
        "scale inverted",
        lambda given: given.head_dim**0.5,
        "The scores are multiplied by √{head_dim}; they are divided by it.",
    ),
    _wrong("no scale", lambda given: 1.0, "The scores are not divided by √head_dim = √{head_dim}."),
    _wrong(
        "missing root",
        lambda given: 1 / given.head_dim,
        "The scores are divided by {head_dim}; it is √{head_dim}.",
    ),
    _wrong(
        "scale by √num_heads",
        lambda given: given.num_heads**-0.5,
        "The scores are divided by √{num_heads}, the number of heads; it is √head_dim = √{head_dim}.",
        lambda given: given.scaled and with_heads(given) and given.num_heads != given.head_dim,
    ),
    _wrong(
        "scale by √T",
        lambda given: given.x.shape[1] ** -0.5,
        "The scores are divided by √{T}, the number of tokens; it is √head_dim = √{head_dim}.",
        lambda given: given.scaled and given.x.shape[1] not in (given.head_dim, given.width, given.num_heads),
    ),
    Mistake(
        "scaled where nothing is",
        "scale",
        lambda scores, given: scores / given.x.shape[-1] ** 0.5,
        "scaled",
        "The scores are divided by √{d_in}; simplified attention takes them as they are.",
        "The scale comes with the projections, one rung later.",
        "weights = torch.softmax(scores, dim=-1)",
        _unscaled,
    ),
)

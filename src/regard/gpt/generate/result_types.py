"""What GPT.generate returns, as a type checker knows it: by the kind of prompt, and by `samples` and `logprobs`.

Others are Any: a tensor does not say how many texts it holds, nor a variable whether it is None.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict, cast, overload, runtime_checkable

from torch import Tensor

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from regard.gpt.generate.text import Continuation

    Texts = list[str] | tuple[str, ...]  # a str is a sequence of str, too
    Rows = Sequence[list[int]] | Sequence[tuple[int, ...]]
    No = Literal[False]


class StreamKeywords(TypedDict, total=False):
    """StreamOptions as a type checker knows keywords; max_new_tokens may be positional, and is not among them."""

    temperature: float
    top_k: int | None
    top_p: float | None
    min_p: float | None
    seed: int | None
    stop: int | str | Sequence[int] | Sequence[str] | None


@runtime_checkable
class Generate(Protocol):
    """The type of GPT.generate."""

    @overload
    def __call__(
        self,
        prompt: str,
        max_new_tokens: int = 100,
        *,
        samples: None = None,
        logprobs: No = False,
        **options: Unpack[StreamKeywords],
    ) -> str: ...
    @overload
    def __call__(
        self,
        prompt: str,
        max_new_tokens: int = 100,
        *,
        samples: int,
        logprobs: No = False,
        **options: Unpack[StreamKeywords],
    ) -> list[str]: ...
    @overload
    def __call__(
        self,
        prompt: str,
        max_new_tokens: int = 100,
        *,
        samples: None = None,
        logprobs: Literal[True],
        **options: Unpack[StreamKeywords],
    ) -> Continuation: ...
    @overload
    def __call__(
        self,
        prompt: Sequence[int],
        max_new_tokens: int = 100,
        *,
        samples: None = None,
        logprobs: No = False,
        **options: Unpack[StreamKeywords],
    ) -> list[int]: ...
    @overload
    def __call__(
        self,
        prompt: Texts,
        max_new_tokens: int = 100,
        *,
        samples: None = None,
        logprobs: No = False,
        **options: Unpack[StreamKeywords],
    ) -> list[str]: ...
    @overload
    def __call__(
        self,
        prompt: Rows,
        max_new_tokens: int = 100,
        *,
        samples: None = None,
        logprobs: No = False,
        **options: Unpack[StreamKeywords],
    ) -> list[list[int]]: ...
    @overload
    def __call__(
        self,
        prompt: str | Sequence[Any] | Tensor,
        max_new_tokens: int = 100,
        *,
        mask: Any = None,
        samples: int | None = None,
        logprobs: bool = False,
        **options: Unpack[StreamKeywords],
    ) -> Any: ...


def typed_by_prompt(function: Callable[..., Any]) -> Generate:
    """The same function, for type checkers a Generate."""
    return cast("Generate", function)

"""The table of options of generation: `GPT.generate` and `GPT.stream` take their keyword arguments from it, and
`regard generate` its flags.

To add a sampling option, add a field to SamplingOptions and use it in sample.py.

    SamplingOptions  how a token is chosen from scores
    StreamOptions    + how long a text is and what ends it, and the seed
    GenerateOptions  + several texts, and what is returned
"""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, fields
from typing import Annotated, Any

from regard.gpt.option_table import Option, at_least_one, check_options, number, valid_seed

TINY = 2.0**-126  # the smallest normal float32; smaller numbers may be 0 in its arithmetic


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


_temperature = number(
    lambda t: _is_number(t) and 0 <= t < math.inf, "a number of at least 0; 0 takes the best token, 0.8 is usual"
)
_top_k = number(lambda k: type(k) is int and k >= 1, "a whole number of at least 1; leave it out for all tokens")
_top_p = number(lambda p: _is_number(p) and 0 < p <= 1, "above 0 and at most 1; 0.9 is usual, 1 keeps all tokens")
_min_p = number(lambda p: _is_number(p) and 0 <= p <= 1, "from 0 to 1; 0.05 is usual, 0 keeps all tokens")


@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """How the next token is sampled.

    >>> SamplingOptions(temperature=0).greedy
    True

    temperature: below 1 sharpens the distribution, above 1 flattens it; 0 is greedy: always the best token. So is a
        temperature that float32 cannot hold, below 1.2e-38.
    top_k: only the k best tokens.
    top_p: only the best tokens that together have probability p (nucleus sampling); applied after top_k.
    min_p: only tokens with at least this share of the best token's probability; applied last.
    """

    temperature: Annotated[
        float | int, Option("Sampling temperature. 0 takes the most likely token.", _temperature, command_default=0.8)
    ] = 1.0
    top_k: Annotated[
        int | None,
        Option("Sample from the k most likely tokens.", _top_k, default_text="50; 0 for all", command_default=None),
    ] = None
    top_p: Annotated[
        float | int | None,
        Option("Sample from the most likely tokens with this total probability.", _top_p, default_text="off"),
    ] = None
    min_p: Annotated[
        float | int | None,
        Option("Sample from tokens at least this likely relative to the best.", _min_p, default_text="off"),
    ] = None

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def greedy(self) -> bool:
        """Is it always the best token, without randomness?"""
        return self.temperature < TINY or self.top_k == 1

    @property
    def sampling(self) -> "SamplingOptions":
        """The options of sampling alone, by which CUDA graphs are kept."""
        return SamplingOptions(**{field.name: getattr(self, field.name) for field in fields(SamplingOptions)})


@dataclass(frozen=True)
class StreamOptions(SamplingOptions):
    """The options of one text."""

    max_new_tokens: Annotated[
        int, Option("Maximum number of tokens to generate.", at_least_one, command_default=200)
    ] = 100
    _: KW_ONLY
    seed: Annotated[
        int | None, Option("Random seed. The same seed gives the same text.", valid_seed, default_text="random")
    ] = None
    stop: Annotated[
        int | str | Sequence[int] | Sequence[str] | None,
        Option("Stop before this text, or any of several.", default_text="none; may be repeated", command_default=None),
    ] = None


@dataclass(frozen=True)
class GenerateOptions(StreamOptions):
    """The options of several texts at once."""

    _: KW_ONLY
    mask: Annotated[Any, Option("For a tensor (B, T): True or 1 where a token is real.", flag=None)] = None
    samples: Annotated[
        int | None, Option("Number of texts. Each has the seed after the one before.", at_least_one, command_default=1)
    ] = None
    logprobs: Annotated[bool, Option("Return each text as a Continuation, with log-probabilities.", flag=None)] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.greedy and (self.samples or 1) > 1:
            raise ValueError(
                f"samples ({self.samples}) would all be the same text, the greedy one; raise temperature or top_k"
            )

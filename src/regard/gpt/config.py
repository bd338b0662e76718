"""GPTConfig: the sizes and options of a model. Blocks read it; attention layers do not.

GPT-2 is the default. The Llama family differs by RMS norms, rotary positions, a gated feed-forward and no biases; some
of its models also have fewer key/value heads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Literal

from regard.attention.positions import Rotary
from regard.attention.presets import GPT2_CONFIGS
from regard.gpt.activations import ACTIVATIONS, FeedForwardName
from regard.support.arguments import check_dropout, check_heads, check_whole

_SIZES = ("vocab_size", "context_length", "num_layers", "d_model", "num_heads")


@dataclass(frozen=True)
class GPTConfig:
    """The sizes and options of a model.

    >>> GPTConfig.preset("gpt2-small").num_layers
    12

    vocab_size, context_length: the number of different tokens, and the maximum length of a text.
    num_layers, d_model, num_heads: number of blocks, width of a token's vector, heads per block.
    num_kv_heads: key/value heads, if fewer than num_heads (grouped queries).
    d_ff: inner width of the feed-forward; 4 × d_model by default.
    rotary: rotate queries and keys by position; None is a learned position embedding.
    norm: "layer" or "rms".
    feed_forward: a name in regard.gpt.activations, such as "gelu" or "swiglu".
    qkv_bias, bias: biases in the three projections of attention; in all other linear layers and norms.
    tied: the head's weight is the token embedding.
    end: the id of the token that ends a text, or several ids; an empty prompt starts from the first.
    """

    vocab_size: int
    context_length: int
    num_layers: int
    d_model: int
    num_heads: int
    num_kv_heads: int | None = None
    d_ff: int | None = None
    dropout: float = 0.0
    rotary: Rotary | None = None
    window: int | None = None
    qk_norm: bool = False
    norm: Literal["layer", "rms"] = "layer"
    norm_eps: float = 1e-5
    feed_forward: FeedForwardName = "gelu"
    qkv_bias: bool = True
    bias: bool = True
    tied: bool = True
    end: int | tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        sizes = {name: getattr(self, name) for name in _SIZES}
        check_whole(**sizes, num_kv_heads=self.kv_heads, d_ff=self.inner)
        check_dropout(self.dropout)
        check_heads(self.d_model, self.num_heads)
        for name, known in (("norm", ("layer", "rms")), ("feed_forward", tuple(ACTIVATIONS))):
            if (value := getattr(self, name)) not in known:
                raise ValueError(f"{name} ({value!r}) must be one of {', '.join(map(repr, known))}")
        if not 0 < self.norm_eps < 1:
            raise ValueError(f"norm_eps ({self.norm_eps}) must be above 0 and below 1; 1e-5 is usual")
        if not all(0 <= end < self.vocab_size for end in self.ends):
            raise ValueError(f"end ({self.end}) must be a token id below vocab_size ({self.vocab_size})")

    @property
    def kv_heads(self) -> int:
        """Key/value heads per block."""
        return self.num_heads if self.num_kv_heads is None else self.num_kv_heads

    @property
    def inner(self) -> int:
        """The feed-forward's inner width."""
        return 4 * self.d_model if self.d_ff is None else self.d_ff

    @property
    def head_dim(self) -> int:
        """Width of a head."""
        return self.d_model // self.num_heads

    @property
    def ends(self) -> tuple[int, ...]:
        """The ids of all tokens that end a text.

        >>> [GPTConfig.preset("tiny", end=end).ends for end in (0, (5, 7), None)]
        [(0,), (5, 7), ()]
        """
        return () if self.end is None else (self.end,) if isinstance(self.end, int) else self.end

    def with_(self, **changes: Any) -> GPTConfig:
        """The same config with some fields changed."""
        return replace(self, **changes)

    @staticmethod
    def preset(name: str, **changes: Any) -> GPTConfig:
        """A preset by name: micro, tiny, gpt2-small, gpt2-medium, gpt2-large or gpt2-xl; fields may be changed.

        >>> GPTConfig.preset("tiny", vocab_size=5000).vocab_size
        5000

        The sizes are those of regard.GPT2_CONFIGS, the options are not: a preset is made to load OpenAI's weights,
        which have biases (qkv_bias=True), and to run them without dropout; that table describes the textbook's layer,
        with qkv_bias=False and dropout=0.1.
        """
        if name not in PRESETS:
            near = get_close_matches(name, PRESETS, 1, 0.5) or get_close_matches(f"gpt2-{name}", PRESETS, 1, 0.8)
            hint = f"; did you mean {near[0]}?" if near else ""
            if name == "gpt2":  # what the hub calls gpt2-small
                hint = "; did you mean gpt2-small? GPT.from_pretrained('gpt2') loads the trained weights from the hub"
            raise ValueError(f"no preset is called {name!r}; there are {', '.join(PRESETS)}{hint}")
        return replace(PRESETS[name], **changes)


def _of_sizes(sizes: dict[str, Any]) -> GPTConfig:
    return GPTConfig(**{name: sizes[name] for name in _SIZES}, end=50256)


PRESETS: dict[str, GPTConfig] = {
    "micro": GPTConfig(vocab_size=512, context_length=64, num_layers=2, d_model=128, num_heads=4, end=0),
    "tiny": GPTConfig(vocab_size=4096, context_length=512, num_layers=6, d_model=256, num_heads=8, end=0),
    **{name: _of_sizes({**size}) for name, size in GPT2_CONFIGS.items()},
}

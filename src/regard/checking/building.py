"""Building: the arguments of a learner's constructor, by the names that people use for the sizes of attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Sizes:
    """The sizes of one experiment. All are different, so that no axis can be taken for another."""

    d_in: int = 13
    num_heads: int = 3
    head_dim: int = 7
    context_length: int = 11
    B: int = 2
    T: int = 5
    kv_heads: int | None = None

    @property
    def width(self) -> int:
        """d_out: all heads together."""
        return self.num_heads * self.head_dim


WIDTH_IN = ("d_in", "in_dim", "input_dim", "in_features", "dim_in", "d_input", "input_size", "emb_in")
WIDTH_OUT = ("d_out", "out_dim", "output_dim", "out_features", "dim_out", "d_output", "output_size", "d_attn")
WIDTH = (
    *("d_model", "embed_dim", "emb_dim", "n_embd", "hidden_size", "dim", "embed_size", "d_embed", "model_dim"),
    *("embedding_dim", "hidden_dim", "n_embed", "emb_size", "width", "channels", "embedding_size", "d"),
)
HEADS = ("num_heads", "n_heads", "n_head", "heads", "nhead", "num_attention_heads", "h", "number_of_heads", "nheads")
KV_HEADS = ("num_kv_heads", "n_kv_heads", "num_key_value_heads", "kv_heads", "n_kv_head", "num_groups", "n_groups")
HEAD_DIM = ("head_dim", "head_size", "d_head", "dim_head", "d_k", "d_v", "d_q", "head_width")
CONTEXT = (
    *("context_length", "block_size", "max_seq_len", "max_len", "seq_len", "context_size", "ctx_len", "n_ctx"),
    *("max_position_embeddings", "n_positions", "context_window", "max_length", "seq_length", "max_seq_length"),
)
DROPOUT = (
    *("dropout", "p", "drop", "dropout_p", "drop_rate", "dropout_rate", "p_drop", "attn_dropout", "attn_pdrop"),
    *("attention_dropout", "attn_drop", "resid_pdrop", "proj_drop", "resid_dropout", "embd_pdrop", "drop_p"),
)
BIAS = ("qkv_bias", "bias", "use_bias", "attention_bias", "attn_bias")
CAUSAL = ("causal", "is_causal")
CONFIG = ("config", "cfg", "args", "params", "conf", "hparams")


@dataclass(frozen=True)
class Built:
    """Arguments for a constructor, and those that nobody could fill."""

    arguments: dict[str, Any]
    unknown: tuple[str, ...] = ()


def has(described: dict[str, Any], names: tuple[str, ...]) -> bool:
    """Does the constructor take one of these, itself or, as far as one can tell, by a configuration?"""
    own = [p["name"] for p in described["build"]]
    return any(name in own for name in (*names, *CONFIG))


def arguments(described: dict[str, Any], sizes: Sizes, dropout: float = 0.0, **own: Any) -> Built:
    """The arguments with which a class is built at these sizes; `own` are the learner's, by name, and come first."""
    names = [p["name"] for p in described["build"]]
    known = _values(sizes, dropout, square=not any(name in names for name in WIDTH_OUT))
    chosen: dict[str, Any] = {}
    unknown = []
    for p in described["build"]:
        name = p["name"]
        if p["kind"] in ("VAR_POSITIONAL", "VAR_KEYWORD"):
            continue
        if name in own:
            chosen[name] = own[name]
        elif name in CONFIG:
            chosen[name] = {**known, **own}
        elif name in known and not (name in BIAS and not p["required"]):
            chosen[name] = known[name]
        elif p["required"]:
            unknown.append(name)
    return Built(chosen, tuple(unknown))


def _values(sizes: Sizes, dropout: float, square: bool) -> dict[str, Any]:
    """A value for every known name."""
    d_in = sizes.width if square else sizes.d_in
    return {
        **dict.fromkeys(WIDTH_IN, d_in),
        **dict.fromkeys(WIDTH_OUT, sizes.width),
        **dict.fromkeys(WIDTH, sizes.width),
        **dict.fromkeys(HEADS, sizes.num_heads),
        **dict.fromkeys(KV_HEADS, sizes.kv_heads or sizes.num_heads),
        **dict.fromkeys(HEAD_DIM, sizes.head_dim),
        **dict.fromkeys(CONTEXT, sizes.context_length),
        **dict.fromkeys(DROPOUT, dropout),
        **dict.fromkeys(BIAS, False),
        **dict.fromkeys(CAUSAL, True),
    }

"""Mistakes in giving each head its part of a vector, and in sharing key heads."""

from regard.mistakes.formula import Case, split_alternating
from regard.mistakes.mistake import Mistake, with_heads, with_mask


def _with_groups(case: Case) -> bool:
    if "W_key" not in case.projections:
        return False
    kv_heads = len(case.projections["W_key"].weight) // case.head_dim
    return 1 < kv_heads < case.num_heads


_FIX = "queries = queries.view(B, T, num_heads, head_dim).transpose(1, 2)"

MISTAKES = (
    Mistake(
        "split without transpose",
        "split",
        lambda t, case: t.reshape(len(t), -1, t.shape[1], case.head_dim),
        "split",
        "view(B, {num_heads}, T, {head_dim}) cuts the memory into {num_heads} runs of tokens: a head gets whole "
        "vectors of some tokens in place of its {head_dim} numbers of every token.",
        "view never moves a number. (B, T, H·D) can be read as (B, T, H, D); putting H before T needs transpose(1, 2).",
        _FIX,
        applies=with_heads,
    ),
    Mistake(
        "split without transpose",
        "split",
        lambda t, case: t.unflatten(-1, (-1, case.head_dim)),  # (B, T, H, D): the second is taken for the heads
        "scores",
        "The heads stay behind the tokens, (B, T, {num_heads}, {head_dim}): the scores compare the {num_heads} heads "
        "of one token with each other, and no token sees another.",
        "Matrix products work on the last two axes: those must be tokens and head_dim, which needs transpose(1, 2).",
        _FIX,
        applies=lambda case: with_heads(case) and case.num_heads != len(case.visible()) and not with_mask(case),
        rare=True,
    ),
    Mistake(
        "heads split alternately, joined whole",
        "split",
        split_alternating,
        "split",
        "The split reads a vector as (head_dim, heads) = ({head_dim}, {num_heads}), "
        "but the heads are joined as (heads, head_dim).",
        "Either order works, but split and merge must use the same one.",
        _FIX,
        applies=with_heads,
    ),
    Mistake(
        "repeat and interleave confused",
        "share",
        lambda t, case: t.repeat(1, case.num_heads // t.shape[1], 1, 1),
        "shared keys",
        "Key heads are repeated as 0 1 0 1; query heads that stand together share one key head, so they are 0 0 1 1.",
        "With grouped queries, query head h uses key head h // (num_heads / num_kv_heads).",
        "keys = keys.repeat_interleave(num_heads // num_kv_heads, dim=1)",
        applies=_with_groups,
    ),
)

"""Mistakes in giving each head its part of a vector, and in sharing key heads."""

from torch import Tensor

from regard.mistakes.formula import Case, split_alternating
from regard.mistakes.mistake import Mistake, with_heads, with_mask


def _with_groups(case: Case) -> bool:
    if "W_key" not in case.projections:
        return False
    kv_heads = len(case.projections["W_key"].weight) // case.head_dim
    return 1 < kv_heads < case.num_heads


def _repeated(t: Tensor, case: Case) -> Tensor:
    return t.repeat(1, case.num_heads // t.shape[1], 1, 1)


def _split_by_memory(t: Tensor, case: Case) -> Tensor:
    return t.reshape(len(t), -1, t.shape[1], case.head_dim)


_FIX = "queries = queries.view(B, T, num_heads, head_dim).transpose(1, 2)"

MISTAKES = (
    Mistake(
        "split without transpose",
        "split",
        _split_by_memory,
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
        also={"merge": lambda context, case: context.flatten(2)},
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
        "heads and head_dim swapped in view",
        "split",
        lambda t, case: t.unflatten(-1, (case.head_dim, -1)).transpose(1, 2),  # (B, D, T, H)
        "split",
        "view(B, T, head_dim, heads) is taken for view(B, T, heads, head_dim): there are {head_dim} heads "
        "of {num_heads}.",
        "The first of the two axes is the one that transpose(1, 2) moves in front of the tokens.",
        _FIX,
        applies=lambda case: with_heads(case) and case.num_heads != case.head_dim,
        written=r"(?i)(view|reshape|unflatten|rearrange)",
        rare=True,
    ),
    Mistake(
        "batch and heads mixed",
        "split",
        _split_by_memory,
        "split",
        "view(B·{num_heads}, T, {head_dim}) cuts the memory into runs of tokens: a head gets whole "
        "vectors of some tokens "
        "in place of its {head_dim} numbers of every token.",
        "view never moves a number: heads are put in front of the tokens by transpose(1, 2), before B and "
        "H are joined.",
        "queries = queries.view(B, T, num_heads, head_dim).transpose(1, 2).reshape(B * num_heads, T, head_dim)",
        applies=with_heads,
        also={"merge": lambda context, case: context.reshape(len(context), context.shape[2], -1)},
        written=r"(view|reshape)\(\s*[\w.]+(\([^()]*\)|\[[^]]*\])?\s*\*\s*[\w.]+\s*,",
    ),
    *(
        Mistake(
            f"repeat and interleave confused{of}",
            step,
            _repeated,
            "shared keys",
            f"{words} heads are repeated as 0 1 0 1; query heads that stand together share one, so they are 0 0 1 1.",
            "With grouped queries, query head h uses key head h // (num_heads / num_kv_heads).",
            "keys = keys.repeat_interleave(num_heads // num_kv_heads, dim=1)",
            applies=_with_groups,
            also=also,
            rare=bool(of),
            family="repeat and interleave confused",
        )
        for of, words, step, also in (
            ("", "Key", "share", {"share_values": _repeated}),
            (": of the keys", "Key", "share", {}),
            (": of the values", "Value", "share_values", {}),
        )
    ),
)

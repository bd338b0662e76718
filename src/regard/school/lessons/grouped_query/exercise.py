"""Grouped queries: shared keys."""

import torch

from regard.school.exercises import Function, Wrong, cat
from regard.school.exercises.attention_slips import WITH_MASK, attention_slips

B, H, HKV, T, S, D = 4, 6, 2, 5, 7, 3


def interleaved(k, num_heads):
    return k.repeat_interleave(num_heads // k.shape[1], dim=1)


def repeated(k, num_heads):
    return k.repeat(1, num_heads // k.shape[1], 1, 1)


def first(k, num_heads):
    return k[:, :1].expand(-1, num_heads, -1, -1)


def make_attend(share_k=interleaved, share_v=interleaved, scale=D**-0.5):
    def attend(q, k, v):
        return (q @ share_k(k, H).mT * scale).softmax(-1) @ share_v(v, H)

    return attend


def share_arguments(random):
    return torch.randn(B, HKV, S, D, generator=random), H


def attend_arguments(random):
    q = torch.randn(B, H, T, D, generator=random)
    return q, *torch.randn(2, B, HKV, S, D, generator=random)


def of_mean_queries(q, k, v):
    mean = q.view(B, HKV, H // HKV, T, D).mean(2)
    return interleaved((mean @ k.mT / D**0.5).softmax(-1) @ v, H)


INTERLEAVE = "The key heads come as 0 1 0 1 0 1; neighbouring query heads share one: 0 0 0 1 1 1."
parts = [
    Function(
        "share",
        share_arguments,
        interleaved,
        wrong=[
            Wrong(
                "repeat",
                INTERLEAVE,
                repeated,
                why="repeat puts whole copies one after the other; repeat_interleave repeats each head in its place.",
            ),
            Wrong(
                "first head for all",
                "All query heads get key head 0; the others are never used.",
                first,
                why="One head for all is multi-query attention. Here there are groups.",
            ),
            Wrong(
                "tokens repeated",
                "Axis 2 is repeated, the tokens: (B, Hkv, H/Hkv · S, D). The heads are axis 1.",
                lambda k, num_heads: k.repeat_interleave(num_heads // k.shape[1], dim=2),
            ),
            Wrong(
                "no dim",
                "Without dim, repeat_interleave makes one long row of all numbers. The heads are dim=1.",
                lambda k, num_heads: k.repeat_interleave(num_heads // k.shape[1]),
            ),
            Wrong(
                "too many heads",
                "Each head is repeated num_heads times; it is num_heads / Hkv times.",
                lambda k, num_heads: k.repeat_interleave(num_heads, dim=1),
            ),
            Wrong(
                "heads in reverse",
                "The key heads come in reverse order.",
                lambda k, num_heads: interleaved(k.flip(1), num_heads),
            ),
            Wrong(
                "averaged",
                "All query heads get the mean of the key heads; each group gets its own.",
                lambda k, num_heads: k.mean(1, keepdim=True).expand(-1, num_heads, -1, -1),
            ),
            Wrong(
                "the last head for the rest",
                "The first heads get one key head each, and all others the last; groups are equally large.",
                lambda k, num_heads: k[:, [min(h, k.shape[1] - 1) for h in range(num_heads)]],
            ),
            Wrong(
                "expand",
                "expand stretches axes of size 1 only, and k has Hkv heads. Repeat each of them.",
                raises="expanded size",
            ),
        ],
    ),
    Function(
        "attend",
        attend_arguments,
        make_attend(),
        wrong=[
            Wrong("repeat", INTERLEAVE, make_attend(repeated, repeated)),
            Wrong(
                "queries averaged",
                "The queries of a group are averaged; each query head asks for itself; keys and values are shared.",
                of_mean_queries,
            ),
            Wrong(
                "keys and values differ",
                "Keys are shared as 0 0 0 1 1 1 and values as 0 1 0 1 0 1, or the reverse.",
                make_attend(interleaved, repeated),
            ),
            *attention_slips(
                lambda q, k, v: (q, interleaved(k, H), interleaved(v, H)), leave_out=WITH_MASK + ("no scale",)
            ),
            Wrong("not scaled", "The scores are not divided by √head_dim.", make_attend(scale=1)),
            Wrong(
                "keys and values exchanged",
                "The keys are taken for the values, and the values for the keys.",
                lambda q, k, v: make_attend()(q, v, k),
            ),
            Wrong("scaled by H", "The scores are divided by √num_heads; it is √head_dim.", make_attend(scale=H**-0.5)),
            Wrong(
                "values not shared",
                "The shapes do not fit: v still has Hkv heads, or k has.",
                raises="must match the size of tensor",
            ),
        ],
    ),
]

picture = cat.of_result(
    "attend",
    "Two heads of your code share the keys; their queries differ:",
    torch.stack([cat.queries(0), cat.queries(0) * 0.3])[None],
    cat.keys(0)[None, None],
    cat.EYE[None, None],
)

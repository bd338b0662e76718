"""Put the heads together again."""

import torch

from regard.school.exercises import Function, Wrong, cat

B, H, T, D = 4, 3, 5, 2


def arguments(random):
    first = int(torch.randint(10, (1,), generator=random))
    x = first + torch.arange(B * T * H * D, dtype=torch.float32).view(B, T, H, D)
    return (x.transpose(1, 2).contiguous(),)


parts = [
    Function(
        "merge_heads",
        arguments,
        right=lambda context: context.transpose(1, 2).reshape(B, T, H * D),
        wrong=[
            Wrong(
                "view without contiguous",
                "view fails: after transpose the numbers are not in memory order. Call .contiguous() first.",
                raises="view size is not compatible",
                why="view cannot move numbers, contiguous copies them into order. reshape does both where it must.",
            ),
            Wrong(
                "merged without transpose",
                "The shape is right, the numbers are not: a vector has numbers of different words.",
                lambda context: context.reshape(B, T, H * D),
                why="All words of head 0 come first in memory. transpose(1, 2) puts the parts of one word together.",
            ),
            Wrong(
                "heads averaged",
                "The heads are averaged; put them side by side.",
                lambda context: context.mean(1),
                why="An average mixes what two heads found, and nobody can tell it apart again.",
            ),
            Wrong(
                "heads added up",
                "The heads are added up; put them side by side.",
                lambda context: context.sum(1),
                why="A sum mixes what two heads found, and nobody can tell it apart again.",
            ),
            Wrong(
                "heads interleaved",
                "The heads alternate: number 0 of every head, then number 1. Each head's part must stay together.",
                lambda context: context.permute(0, 2, 3, 1).reshape(B, T, H * D),
            ),
            Wrong(
                "not joined",
                "The result is still (B, T, num_heads, head_dim); join the last two axes.",
                lambda context: context.transpose(1, 2),
            ),
            Wrong(
                "wrong axes swapped",
                "Words and numbers are swapped; swap heads and words, axes 1 and 2.",
                lambda context: context.transpose(2, 3).reshape(B, T, H * D),
            ),
            Wrong(
                "heads summed",
                "The heads are added up, and the sum repeated; they stand side by side.",
                lambda context: context.sum(1).repeat(1, 1, H),
            ),
            Wrong(
                "heads in reverse",
                "The heads stand in reverse order.",
                lambda context: context.flip(1).transpose(1, 2).flatten(2),
            ),
            Wrong(
                "words and heads' numbers exchanged",
                "The axes are in the order B, D, H, T; it is B, T, H, D.",
                lambda context: (
                    context.permute(0, 2, 1, 3).permute(0, 3, 1, 2).reshape(context.shape[0], context.shape[2], -1)
                ),
            ),
            Wrong(
                "texts and heads exchanged",
                "The axes of texts and heads were exchanged.",
                lambda context: context.transpose(1, 2).transpose(0, 1).reshape(context.shape[0], context.shape[2], -1),
            ),
        ],
    )
]

picture = cat.Picture(
    "merge_heads",
    [(torch.stack([cat.scores(0), cat.scores(1)]).softmax(-1)[None],)],
    cat.side_by_side,
    "One vector for each word, joined by you: first what head 0 took, then what head 1 took:",
    cat.WORDS,
)

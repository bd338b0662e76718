"""Hide the padding of a batch."""

import torch

from regard.school.exercises import cat
from regard.school.exercises import Fault, Function, Judged, Wrong
from regard.school.exercises.attention_slips import attention_slips


def mask_arguments(random):
    S = int(torch.randint(6, 12, (), generator=random))
    return torch.randint(2, S - 1, (4,), generator=random), S


def attend_arguments(random):
    """The first text has padding: its mask alone is another than none."""
    q, k, v = (torch.randn(4, 3, 7, 5, generator=random) for _ in range(3))
    lengths = torch.tensor([7, 2, 5, 3])[torch.randperm(4, generator=random)]
    return q, k, v, lengths.roll(int(lengths[0] == 7))


def mask(lengths, S):
    return torch.arange(S) < lengths[:, None]


def attend(q, k, v, lengths, hidden=None):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    hidden = ~mask(lengths, k.shape[-2])[:, None, None, :] if hidden is None else hidden(mask(lengths, k.shape[-2]))
    return scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v


def judge_bool(result, lengths, S):
    if isinstance(result, torch.Tensor) and result.dtype == torch.bool:
        return None
    kind = (
        f"a tensor of {str(result.dtype).removeprefix('torch.')}" if isinstance(result, torch.Tensor) else "no tensor"
    )
    return Fault(
        "numbers instead of bool",
        f"The right tokens are marked, but this is {kind}; a mask is a tensor of True and False.",
        why="masked_fill takes no numbers, and ~ does not turn 0 and 1 around. A comparison gives True and False.",
    )


parts = [
    Function(
        "padding_mask",
        mask_arguments,
        right=mask,
        wrong=[
            Wrong(
                "polarity inverted",
                "True stands where the padding is; True means that a query may look there.",
                lambda lengths, S: torch.arange(S) >= lengths[:, None],
                why="Both meanings are in use; in this course True = may attend, as in PyTorch's own attention.",
            ),
            Wrong(
                "one too many",
                "One token of padding is visible: a text of 3 tokens has the positions 0, 1 and 2.",
                lambda lengths, S: torch.arange(S) <= lengths[:, None],
            ),
            Wrong(
                "padding at the start",
                "The first tokens are hidden; here the padding is at the end.",
                lambda lengths, S: torch.arange(S) >= S - lengths[:, None],
            ),
            Wrong(
                "axes swapped",
                "The result is (S, B); it is (B, S), one row per text.",
                lambda lengths, S: torch.arange(S)[:, None] < lengths,
            ),
            Wrong(
                "axis missing",
                "Positions (S,) and lengths (B,) do not fit; one of them needs a new axis, so that all pairs are "
                "compared.",
                raises="must match the size",
                why="(B, 1) and (S,) broadcast to (B, S): every length beside every position.",
            ),
            Wrong(
                "one too few",
                "The last word of each text is hidden: positions count from 0, so length n has positions 0 to n − 1.",
                lambda lengths, S: torch.arange(S) < lengths[:, None] - 1,
            ),
            Wrong(
                "padding seen, text hidden",
                "Only padding behind the first padded place is seen; wanted is the text: positions before its length.",
                lambda lengths, S: torch.arange(S) > lengths[:, None],
            ),
            Wrong(
                "one place only",
                "Only one place of each text is True; all before its length are.",
                lambda lengths, S: torch.arange(S) == lengths[:, None],
            ),
        ],
    ),
    Judged("padding_mask", mask_arguments, judge_bool),
    Function(
        "attend",
        attend_arguments,
        right=attend,
        wrong=[
            Wrong(
                "queries hidden instead of keys",
                "The mask hides the queries that are padding, (B, 1, T, 1); it is the keys that nobody may look at.",
                lambda q, k, v, lengths: attend(q, k, v, lengths, lambda m: ~m[:, None, :, None]),
                why="The words still see the padding. And the queries of padding may look at nothing: their rows "
                "are NaN.",
            ),
            Wrong(
                "queries and keys hidden",
                "Rows of padding may look at nothing, which gives NaN; hide the keys only.",
                lambda q, k, v, lengths: attend(
                    q, k, v, lengths, lambda m: ~(m[:, None, :, None] & m[:, None, None, :])
                ),
                why="What a query of padding computes is never used; it does no harm, but NaN does.",
            ),
            Wrong(
                "nothing hidden",
                "The padding is seen: the output is that of no mask at all.",
                lambda q, k, v, lengths: attend(q, k, v, lengths, lambda m: torch.zeros(1, dtype=torch.bool)),
            ),
            Wrong(
                "text hidden, padding seen",
                "The words are hidden and the padding is seen: masked_fill hides where it finds True.",
                lambda q, k, v, lengths: attend(q, k, v, lengths, lambda m: m[:, None, None, :]),
            ),
            *attention_slips(
                lambda q, k, v, lengths: (q, k, v, mask(lengths, k.shape[-2])[:, None, None]),
                leave_out=("no mask", "root of the number of queries"),
            ),
            Wrong(
                "mask of the first text",
                "All texts are as long as the first one: its row of the mask hides for all.",
                lambda q, k, v, lengths: attend(q, k, v, lengths, lambda m: ~m[0]),
            ),
            Wrong(
                "mask does not fit",
                "The mask does not fit the scores, (B, H, T, S): B must stand first and S last, with axes of "
                "size 1 between.",
                raises="must match the size",
                why="Axes are matched from the right; one of size 1 is repeated as often as needed.",
            ),
        ],
    ),
]

picture = cat.Picture(
    "attend",
    [(*(t.expand(2, 1, 6, 6) for t in (cat.queries(), cat.keys(), cat.EYE)), torch.tensor([6, 3]))],
    lambda results: results[0][1],
    "A text of three words, padded to six: nobody looks at the padding (–):",
    ["The", "cat", "sat"] + ["–"] * 3,
    ["The", "cat", "sat"] + ["–"] * 3,
)

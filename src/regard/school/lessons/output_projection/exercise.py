"""The output projection."""

import torch

from regard.school.exercises import Function, Wrong, cat

H, D = 3, 2
E = H * D


def context_and_weight(random):
    return torch.randn(2, H, 5, D, generator=random), torch.randn(E, E, generator=random)


def output_arguments(random):
    return *context_and_weight(random), torch.randn(E, generator=random)


def head_arguments(random):
    return *context_and_weight(random), int(torch.randint(1, H, (1,), generator=random))


def merge(context):
    return context.transpose(1, 2).flatten(2)


def columns(weight, h):
    return weight[:, h * D : (h + 1) * D]


parts = [
    Function(
        "output",
        output_arguments,
        right=lambda context, weight, bias: merge(context) @ weight.T + bias,
        wrong=[
            Wrong("no bias", "The bias is not added.", lambda context, weight, bias: merge(context) @ weight.T),
            Wrong(
                "weight not transposed",
                "The weight is used as it is; nn.Linear multiplies by its transpose.",
                lambda context, weight, bias: merge(context) @ weight + bias,
                why="nn.Linear keeps a row for each output. The matrix is square here, so no shape gives it away.",
            ),
            Wrong(
                "no projection",
                "These are the merged heads; the matrix and the bias are missing.",
                lambda context, weight, bias: merge(context),
                why="Without it every number of the output would come from one head only.",
            ),
            Wrong(
                "heads averaged",
                "The heads are averaged, so 2 numbers are left and the weight needs 6: merge them side by side.",
                raises="shapes cannot be multiplied (10x2 and 6x6)",
            ),
            Wrong(
                "not merged",
                "The context still has its heads apart, (2, 3, 5, 2); merge them first.",
                raises="shapes cannot be multiplied (30x2 and 6x6)",
            ),
            Wrong(
                "merged without transpose",
                "The shape is right, the numbers are not: the heads were merged without a transpose. Use merge_heads.",
                lambda context, weight, bias: context.reshape(2, 5, E) @ weight.T + bias,
            ),
            Wrong(
                "bias subtracted",
                "The bias is subtracted; it is added.",
                lambda context, weight, bias: merge(context) @ weight.T - bias,
            ),
            Wrong(
                "bias twice",
                "The bias is added twice.",
                lambda context, weight, bias: merge(context) @ weight.T + 2 * bias,
            ),
            Wrong(
                "bias for every head",
                "The bias is added once for each head; it is added once.",
                lambda context, weight, bias: merge(context) @ weight.T + H * bias,
            ),
            Wrong(
                "bias before the matrix",
                "The bias is added before the matrix; it comes after it.",
                lambda context, weight, bias: (merge(context) + bias) @ weight.T,
            ),
        ],
    ),
    Function(
        "added_by_head",
        head_arguments,
        right=lambda context, weight, h: context[:, h] @ columns(weight, h).T,
        wrong=[
            Wrong(
                "rows instead of columns",
                "Head {2} is multiplied by rows of the weight; it owns columns.",
                lambda context, weight, h: context[:, h] @ columns(weight.T, h).T,
                why="A row of the weight makes one number of the output, out of all heads. A column belongs to one "
                "number of the merged vector, so to one head.",
            ),
            Wrong(
                "every other column",
                "Head {2} takes every third column; its columns are neighbours, like its numbers after merging.",
                lambda context, weight, h: context[:, h] @ weight[:, h::H].T,
            ),
            Wrong(
                "one head too far",
                "These are the columns after those of head {2}; the columns of head h begin at h · head_dim.",
                lambda context, weight, h: context[:, h] @ weight.roll(-D, 1)[:, h * D : (h + 1) * D].T,
            ),
            Wrong(
                "one column too early",
                "The columns of head {2} start at column {2}; every head before it owns head_dim of them.",
                lambda context, weight, h: context[:, h] @ weight[:, h : h + D].T,
            ),
            Wrong(
                "one head too early",
                "These are the columns of the head before; heads are counted from 0, head {2} begins at {2} · "
                "head_dim.",
                lambda context, weight, h: context[:, h] @ columns(weight, h - 1).T,
            ),
            Wrong(
                "divided by the number of heads",
                "What the head adds is divided by the number of heads; heads are added up, not averaged.",
                lambda context, weight, h: context[:, h] @ columns(weight, h).T / H,
            ),
            Wrong(
                "all heads",
                "This is what all heads add together; return what head {2} adds alone.",
                lambda context, weight, h: merge(context) @ weight.T,
            ),
            Wrong(
                "head 0",
                "This is what head 0 adds; return what head {2} adds.",
                lambda context, weight, h: context[:, 0] @ columns(weight, 0).T,
            ),
            Wrong(
                "all columns",
                "The context of one head has 2 numbers, the weight 6 columns: take the columns of head {2} only.",
                raises="shapes cannot be multiplied (10x2 and 6x6)",
            ),
            Wrong(
                "columns not transposed",
                "The columns are (6, 2), and context[:, h] @ columns needs (2, 6): transpose them.",
                raises="shapes cannot be multiplied (10x2 and 6x2)",
            ),
        ],
    ),
]

# A weight that writes what each head took to the same six numbers: there they are added.
BOTH = torch.cat([torch.eye(6), torch.eye(6)], dim=1)
TOOK = torch.stack([cat.scores(0), cat.scores(1)]).softmax(-1)[None]
picture = cat.Picture(
    "added_by_head",
    [(TOOK, torch.cat([BOTH, BOTH]), 0), (TOOK, torch.cat([BOTH, BOTH]), 1)],
    lambda results: torch.stack([one[0, :, :6] for one in results]),
    "What each head adds to the output, by your columns; the output is their sum:",
    cat.WORDS,
)

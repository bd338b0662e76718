"""GPT: from ids to scores."""

import torch
import torch.nn.functional as F

from regard.school.exercises import cat
from regard.school.exercises import Function, Wrong

H = 2
QKV = ("W_query", "W_key", "W_value")


def norm(x, scale_and_shift):
    return F.layer_norm(x, x.shape[-1:], *scale_and_shift)


def attention(x, w):
    B, T, E = x.shape
    q, k, v = ((x @ w[name]).view(B, T, H, E // H).transpose(1, 2) for name in QKV)
    hidden = torch.ones(T, T, dtype=torch.bool).triu(1)
    scores = (q @ k.mT / (E // H) ** 0.5).masked_fill(hidden, -torch.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2).reshape(B, T, E) @ w["out_proj"]


def block(x, w):
    x = x + attention(norm(x, w["norm_1"]), w)
    return x + F.gelu(norm(x, w["norm_2"]) @ w["up"]) @ w["down"]


def embed(ids, w):
    return w["token_table"][ids] + w["position_table"][: ids.shape[1]]


def arguments(random):
    B, T, V, C, E = 3, 5, 11, 7, 6

    def matrix(rows, columns):
        return torch.randn(rows, columns, generator=random) / rows**0.5

    def make_norm():
        return torch.randn(2, E, generator=random) + torch.tensor([[1.0], [0.0]])

    blocks = []
    for _ in range(3):
        w = {name: matrix(E, E) for name in (*QKV, "out_proj")}
        blocks.append(
            w | {"up": matrix(E, 4 * E), "down": matrix(4 * E, E), "norm_1": make_norm(), "norm_2": make_norm()}
        )
    tables = {"token_table": torch.randn(V, E, generator=random), "position_table": torch.randn(C, E, generator=random)}
    return torch.randint(V, (B, T), generator=random), {**tables, "blocks": blocks, "final_norm": make_norm()}


def through_blocks(x, blocks):
    for weights in blocks:
        x = block(x, weights)
    return x


def with_residual(x, blocks):
    for weights in blocks:
        x = x + block(x, weights)
    return x


def normed_blocks(x, w):
    for weights in w["blocks"]:
        x = norm(block(x, weights), w["final_norm"])
    return x


def score(x, w):
    return norm(x, w["final_norm"]) @ w["token_table"].T


def gpt(ids, w):
    return score(through_blocks(embed(ids, w), w["blocks"]), w)


def same_input(ids, w):
    x = embed(ids, w)
    for weights in w["blocks"]:
        out = block(x, weights)
    return score(out, w)


def norm_in_loop(ids, w):
    x = embed(ids, w)
    for weights in w["blocks"]:
        x = norm(block(x, weights), w["final_norm"])
    return x @ w["token_table"].T


parts = [
    Function(
        "gpt",
        arguments,
        gpt,
        wrong=[
            Wrong(
                "no final norm",
                "The final norm is missing.",
                lambda ids, w: through_blocks(embed(ids, w), w["blocks"]) @ w["token_table"].T,
                why="x is a sum over all blocks and grows with each; the norm brings it back to one size.",
            ),
            Wrong(
                "last block only",
                "Only the last block acts: every block reads the embeddings. Give x its result.",
                same_input,
                why="`x = block(x, …)`: each block continues from the one before.",
            ),
            Wrong(
                "first block only",
                "Only the first block runs. Is `return` inside the loop?",
                lambda ids, w: score(block(embed(ids, w), w["blocks"][0]), w),
            ),
            Wrong("no blocks", "No block runs.", lambda ids, w: score(embed(ids, w), w)),
            Wrong(
                "blocks reversed",
                "The blocks run from the last to the first.",
                lambda ids, w: score(through_blocks(embed(ids, w), w["blocks"][::-1]), w),
            ),
            Wrong(
                "norm in the loop",
                "The final norm is applied after every block; it comes once, after the loop.",
                norm_in_loop,
            ),
            Wrong(
                "norm first",
                "The final norm is applied before the blocks.",
                lambda ids, w: through_blocks(norm(embed(ids, w), w["final_norm"]), w["blocks"]) @ w["token_table"].T,
            ),
            Wrong(
                "softmax",
                "These are probabilities. Logits are the scores before a softmax.",
                lambda ids, w: gpt(ids, w).softmax(-1),
                why="The loss takes logits and does its own softmax; a second one flattens everything.",
            ),
            Wrong(
                "only the last token",
                "Only the last token's logits are returned: (B, V) instead of (B, T, V).",
                lambda ids, w: gpt(ids, w)[:, -1],
                why="In training every position predicts its next token, T losses from one text.",
            ),
            Wrong(
                "no scores",
                "The hidden vectors are returned: (B, T, E). The product with the token table is missing.",
                lambda ids, w: norm(through_blocks(embed(ids, w), w["blocks"]), w["final_norm"]),
            ),
            Wrong(
                "not transposed",
                "The shapes do not fit: token_table is (V, E), and x (B, T, E) needs (E, V).",
                raises="cannot be multiplied",
            ),
            Wrong(
                "first block again and again",
                "Every round of the loop runs the first block; each has its own weights.",
                lambda ids, w: score(through_blocks(embed(ids, w), [w["blocks"][0]] * len(w["blocks"])), w),
            ),
            Wrong(
                "a residual too many",
                "x is added to what a block returns; the block has added it already.",
                lambda ids, w: score(with_residual(embed(ids, w), w["blocks"]), w),
            ),
            Wrong(
                "norm in the loop and after it",
                "The final norm stands in the loop, too; it comes once, after it.",
                lambda ids, w: score(normed_blocks(embed(ids, w), w), w),
            ),
            Wrong(
                "logits normed",
                "The logits are normed; the norm comes before the last product.",
                lambda ids, w: F.layer_norm(
                    through_blocks(embed(ids, w), w["blocks"]) @ w["token_table"].T, (len(w["token_table"]),)
                ),
            ),
            Wrong(
                "without positions",
                "The positions are left out: x is embed(ids, w).",
                lambda ids, w: score(through_blocks(w["token_table"][ids], w["blocks"]), w),
            ),
            Wrong(
                "last block left out",
                "The last block does not run.",
                lambda ids, w: score(through_blocks(embed(ids, w), w["blocks"][:-1]), w),
            ),
        ],
        tolerance=1e-4,
    ),
    Function(
        "next_token",
        arguments,
        lambda ids, w: gpt(ids, w)[:, -1].argmax(-1),
        wrong=[
            Wrong(
                "every token",
                "This predicts after every token, (B, T); wanted is the one after the last.",
                lambda ids, w: gpt(ids, w).argmax(-1),
            ),
            Wrong(
                "first token",
                "This is the prediction after the first token, not after the last.",
                lambda ids, w: gpt(ids, w)[:, 0].argmax(-1),
            ),
            Wrong(
                "over the batch",
                "The best score is taken over the texts of the batch; take it over the vocabulary.",
                lambda ids, w: gpt(ids, w)[:, -1].argmax(0),
            ),
            Wrong(
                "last text",
                "`[-1]` takes the last text of the batch. The tokens are on axis 1: `[:, -1]`.",
                lambda ids, w: gpt(ids, w)[-1].argmax(-1),
            ),
            Wrong(
                "the score",
                "This is the best score itself; wanted is its id, the index.",
                lambda ids, w: gpt(ids, w)[:, -1].amax(-1),
            ),
            Wrong("the worst", "That is the id with the lowest score.", lambda ids, w: gpt(ids, w)[:, -1].argmin(-1)),
            Wrong(
                "mean of the scores",
                "The scores of all positions are averaged; what comes next is told by the last.",
                lambda ids, w: gpt(ids, w).mean(1).argmax(-1),
            ),
        ],
    ),
]

picture = cat.of_change(
    "gpt",
    "Your GPT reads the sentence: how much the scores after each word (row) depend on which word (column):",
    lambda j: (
        torch.tensor([[6 if i == j else i for i in range(6)]]),
        {
            "token_table": torch.cat([cat.padded(), torch.full((1, 12), 0.3)]),
            "position_table": torch.zeros(6, 12),
            "blocks": [cat.block_weights()],
            "final_norm": (torch.ones(12), torch.zeros(12)),
        },
    ),
)

"""The transformer block."""

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


def feed_forward(x, w):
    return F.gelu(x @ w["up"]) @ w["down"]


def arguments(random):
    B, T, E = 2, 5, 6

    def matrix(rows, columns):
        return torch.randn(rows, columns, generator=random) * 2 / rows**0.5

    w = {name: matrix(E, E) for name in (*QKV, "out_proj")}
    w |= {"up": matrix(E, 4 * E), "down": matrix(4 * E, E)}
    w |= {name: torch.randn(2, E, generator=random) + torch.tensor([[1.0], [0.0]]) for name in ("norm_1", "norm_2")}
    return torch.randn(B, T, E, generator=random), w


def add_attention(x, w):
    return x + attention(norm(x, w["norm_1"]), w)


def right(x, w):
    x = add_attention(x, w)
    return x + feed_forward(norm(x, w["norm_2"]), w)


def post_norm(x, w):
    x = norm(x + attention(x, w), w["norm_1"])
    return norm(x + feed_forward(x, w), w["norm_2"])


def no_first_residual(x, w):
    x = attention(norm(x, w["norm_1"]), w)
    return x + feed_forward(norm(x, w["norm_2"]), w)


def residual_of_normed(x, w):
    x = norm(x, w["norm_1"])
    x = norm(x + attention(x, w), w["norm_2"])
    return x + feed_forward(x, w)


def one_norm(x, w):
    x = add_attention(x, w)
    return x + feed_forward(norm(x, w["norm_1"]), w)


OTHERS = {
    "SiLU": F.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "ELU": F.elu,
    "leaky ReLU": F.leaky_relu,
    "GELU twice": lambda t: F.gelu(F.gelu(t)),
    "softmax": lambda t: t.softmax(-1),
}
RESIDUAL = "Without it, a deep model can hardly be trained: each block would replace what all blocks before it made."
parts = [
    Function(
        "feed_forward",
        arguments,
        feed_forward,
        wrong=[
            Wrong(
                "relu",
                "This is ReLU. GPT-2 uses GELU, F.gelu.",
                lambda x, w: F.relu(x @ w["up"]) @ w["down"],
                why="ReLU is 0 for every negative number; gelu(−1) is −0.16.",
            ),
            Wrong(
                "no activation",
                "There is nothing between the two products.",
                lambda x, w: x @ w["up"] @ w["down"],
                why="Two products in a row are one product: up @ down is a single (E, E) matrix.",
            ),
            Wrong(
                "activation last",
                "GELU is applied after the second product; it belongs between the two.",
                lambda x, w: F.gelu(x @ w["up"] @ w["down"]),
            ),
            Wrong(
                "residual inside",
                "x is added here already. The residual belongs to `block`, or it is added twice.",
                lambda x, w: x + feed_forward(x, w),
            ),
            Wrong(
                "matrices in the other order",
                'The shapes do not fit: w["up"] is (E, 4E) and comes first.',
                raises="cannot be multiplied",
            ),
            *(
                Wrong(
                    name,
                    f"The activation is {name}; it is GELU.",
                    lambda x, w, bend=bend: bend(x @ w["up"]) @ w["down"],
                )
                for name, bend in OTHERS.items()
            ),
            Wrong(
                "activation first",
                "GELU bends x itself; it belongs between the two matrices.",
                lambda x, w: F.gelu(x) @ w["up"] @ w["down"],
            ),
        ],
        tolerance=3e-3,
    ),
    Function(
        "block",
        arguments,
        right,
        wrong=[
            Wrong(
                "post-norm",
                "The norms come after the sums. They belong before attention and before feed-forward, inside the "
                "residual.",
                post_norm,
                why="That is the block of 2017. GPT-2 and nearly all models since norm the copy that a part reads.",
            ),
            Wrong("no first residual", "x is not added to what attention returns.", no_first_residual, why=RESIDUAL),
            Wrong(
                "no second residual",
                "x is not added to what the feed-forward returns.",
                lambda x, w: feed_forward(norm(add_attention(x, w), w["norm_2"]), w),
                why=RESIDUAL,
            ),
            Wrong(
                "no residuals",
                "x is added to neither part.",
                lambda x, w: feed_forward(norm(attention(norm(x, w["norm_1"]), w), w["norm_2"]), w),
                why=RESIDUAL,
            ),
            Wrong(
                "residual of the normed",
                "The normed x is added, not x itself.",
                residual_of_normed,
                why="`x = norm(x, …)` forgets x. The line around a part must go past its norm, too.",
            ),
            Wrong("one norm for both", "norm_1 is used twice; the feed-forward has its own, norm_2.", one_norm),
            Wrong(
                "no norms",
                "Neither part reads a normed x.",
                lambda x, w: x + attention(x, w) + feed_forward(x + attention(x, w), w),
            ),
            Wrong(
                "no second norm",
                "The feed-forward reads x as it is, without norm_2.",
                lambda x, w: add_attention(x, w) + feed_forward(add_attention(x, w), w),
            ),
            Wrong(
                "first x added",
                "The second sum adds the block's input. It must add what the first sum gave.",
                lambda x, w: x + feed_forward(norm(add_attention(x, w), w["norm_2"]), w),
                why="So what attention found is lost, except for what the feed-forward made of it.",
            ),
            Wrong(
                "in parallel",
                "The feed-forward reads the block's input. It must read what the first sum gave.",
                lambda x, w: add_attention(x, w) + feed_forward(norm(x, w["norm_2"]), w),
                why="Some models do that for speed (GPT-J); GPT-2 does not.",
            ),
            Wrong(
                "no first norm",
                "attention reads x as it is; it reads a normed copy.",
                lambda x, w: (y := x + attention(x, w)) + feed_forward(norm(y, w["norm_2"]), w),
            ),
            Wrong(
                "norms exchanged",
                "norm_2 stands before attention and norm_1 before the feed-forward.",
                lambda x, w: (y := x + attention(norm(x, w["norm_2"]), w)) + feed_forward(norm(y, w["norm_1"]), w),
            ),
            Wrong(
                "normed copy kept, first",
                "What attention makes is added to the normed copy; it is added to x itself.",
                lambda x, w: (
                    (y := norm(x, w["norm_1"]) + attention(norm(x, w["norm_1"]), w))
                    + feed_forward(norm(y, w["norm_2"]), w)
                ),
            ),
            Wrong(
                "normed copy kept, second",
                "What the feed-forward makes is added to the normed copy; it is added to x itself.",
                lambda x, w: (
                    norm(add_attention(x, w), w["norm_2"]) + feed_forward(norm(add_attention(x, w), w["norm_2"]), w)
                ),
            ),
            Wrong(
                "feed-forward first",
                "The feed-forward comes first; attention does.",
                lambda x, w: (y := x + feed_forward(norm(x, w["norm_2"]), w)) + attention(norm(y, w["norm_1"]), w),
            ),
            Wrong(
                "feed-forward of the first norm",
                "The feed-forward reads norm_2 of the copy that norm_1 made; it reads norm_2 of the sum.",
                lambda x, w: add_attention(x, w) + feed_forward(norm(norm(x, w["norm_1"]), w["norm_2"]), w),
            ),
            Wrong(
                "multiplied instead of added",
                "What the parts make is multiplied with x; it is added.",
                lambda x, w: (y := x * attention(norm(x, w["norm_1"]), w)) * feed_forward(norm(y, w["norm_2"]), w),
            ),
            Wrong(
                "second norm outside",
                "The feed-forward reads x as it is, or normed, and what it makes is normed before it is added.",
                lambda x, w: add_attention(x, w) + norm(feed_forward(add_attention(x, w), w), w["norm_2"]),
            ),
            Wrong("no feed-forward", "The block ends after attention; the feed-forward is missing.", add_attention),
            Wrong(
                "attention twice",
                "Attention stands in the place of the feed-forward, too.",
                lambda x, w: add_attention(x, w) + attention(norm(add_attention(x, w), w["norm_2"]), w),
            ),
            Wrong(
                "norm behind attention",
                "attention reads x as it is, and what it makes is normed; it reads a normed copy.",
                lambda x, w: (y := x + norm(attention(x, w), w["norm_1"])) + feed_forward(norm(y, w["norm_2"]), w),
            ),
            Wrong(
                "second norm twice",
                "What the feed-forward makes is normed as well; only what it reads is.",
                lambda x, w: (
                    add_attention(x, w) + norm(feed_forward(norm(add_attention(x, w), w["norm_2"]), w), w["norm_2"])
                ),
            ),
            Wrong(
                "normed at the end",
                "The sum at the end is normed; x is only added to.",
                lambda x, w: norm(right(x, w), w["norm_2"]),
            ),
            Wrong(
                "attention subtracted",
                "What attention makes is subtracted; it is added.",
                lambda x, w: (y := x - attention(norm(x, w["norm_1"]), w)) + feed_forward(norm(y, w["norm_2"]), w),
            ),
        ],
        tolerance=3e-3,
    ),
]

picture = cat.of_change(
    "block",
    "What your block makes of each word (row), and how much of that changes with which word (column):",
    lambda j: (
        cat.padded(cat.VECTORS if j is None else cat.VECTORS + 0.3 * cat.EYE[:, j : j + 1])[None],
        cat.block_weights(),
    ),
)

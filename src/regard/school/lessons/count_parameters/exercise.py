"""Count the parameters of a layer."""

import torch

from regard.school.exercises import Function, Wrong


def arguments(random, qkv_bias):
    D, H = torch.tensor([4, 5, 7])[torch.randperm(3, generator=random)][:2].tolist()
    d_in = (17, 23, 29)[torch.randint(3, (), generator=random)]
    return d_in, D * H, H, qkv_bias


def right(d_in, d_out, num_heads, qkv_bias):
    return 3 * d_in * d_out + 3 * d_out * qkv_bias + d_out * d_out + d_out


common = [
    Wrong(
        "bias of out_proj forgotten",
        "The d_out = {1} numbers of out_proj's bias are missing.",
        lambda d_in, d_out, H, bias: right(d_in, d_out, H, bias) - d_out,
        why="out_proj always has a bias. For a width of 768 it makes 2,360,064 out of 2,359,296.",
    ),
    Wrong(
        "out_proj forgotten",
        "Only W_query, W_key and W_value are counted; out_proj is missing.",
        lambda d_in, d_out, H, bias: 3 * d_in * d_out + 3 * d_out * bias,
    ),
    Wrong(
        "out_proj is d_in wide",
        "out_proj is counted as d_in × d_out; it reads the joined heads, which are d_out wide.",
        lambda d_in, d_out, H, bias: 4 * d_in * d_out + 3 * d_out * bias + d_out,
    ),
    Wrong(
        "times the heads",
        "The projections are counted once for each head; they make all heads at once.",
        lambda d_in, d_out, H, bias: H * 3 * (d_in * d_out + d_out * bias) + d_out * d_out + d_out,
        why="The heads share the d_out numbers: more heads are narrower heads, not more parameters.",
    ),
    Wrong(
        "everything times the heads",
        "The whole layer is counted {2} times, once for each head; one layer makes all heads at once.",
        lambda d_in, d_out, H, bias: H * right(d_in, d_out, H, bias),
        why="The heads share the d_out numbers: more heads are narrower heads, not more parameters.",
    ),
    Wrong(
        "out_proj times the heads",
        "out_proj is counted once for each head; it is one matrix, which reads all heads side by side.",
        lambda d_in, d_out, H, bias: 3 * (d_in * d_out + d_out * bias) + H * (d_out * d_out + d_out),
    ),
    Wrong(
        "bias times the heads",
        "out_proj's bias is counted once for each head; it is one, of d_out = {1} numbers.",
        lambda d_in, d_out, H, bias: right(d_in, d_out, H, bias) + (H - 1) * d_out,
    ),
    Wrong(
        "one projection for three",
        "W_query is counted, W_key and W_value are not: there are three of them.",
        lambda d_in, d_out, H, bias: d_in * d_out + d_out * bias + d_out * d_out + d_out,
    ),
    Wrong(
        "four of d_in × d_out, without out_proj's bias",
        "out_proj is counted as d_in × d_out, without its bias; it is d_out × d_out + d_out.",
        lambda d_in, d_out, H, bias: 4 * d_in * d_out + 3 * d_out * bias,
    ),
    Wrong(
        "out_proj reads one head",
        "out_proj is counted as d_out // num_heads × d_out; it reads all {2} heads side by side, d_out numbers.",
        lambda d_in, d_out, H, bias: 3 * (d_in * d_out + d_out * bias) + d_out // H * d_out + d_out,
    ),
    Wrong(
        "one head only",
        "The projections are counted for one head of d_out // num_heads numbers; there are {2} heads.",
        lambda d_in, d_out, H, bias: 3 * (d_in * (d_out // H) + d_out // H * bias) + d_out * d_out + d_out,
    ),
    Wrong(
        "four projections, and out_proj",
        "Four matrices of d_in × d_out are counted, and out_proj; queries, keys and values are three.",
        lambda d_in, d_out, num_heads, qkv_bias: 4 * (d_in * d_out + d_out * qkv_bias) + d_out * d_out + d_out,
    ),
    Wrong(
        "two projections",
        "Two matrices of d_in × d_out are counted; queries, keys and values are three.",
        lambda d_in, d_out, num_heads, qkv_bias: 2 * (d_in * d_out + d_out * qkv_bias) + d_out * d_out + d_out,
    ),
    Wrong(
        "mask counted",
        "The mask is counted; it is a buffer, not a parameter: it is not learned.",
        lambda d_in, d_out, num_heads, qkv_bias: (
            3 * (d_in * d_out + d_out * qkv_bias) + d_out * d_out + d_out + 1024 * 1024
        ),
    ),
    Wrong(
        "d_in × d_in",
        "The three matrices are counted as d_in × d_in; they are d_in × d_out.",
        lambda d_in, d_out, num_heads, qkv_bias: 3 * (d_in * d_in + d_out * qkv_bias) + d_out * d_out + d_out,
    ),
    Wrong(
        "three biases of out_proj",
        "out_proj has one bias of d_out, not three.",
        lambda d_in, d_out, num_heads, qkv_bias: 3 * (d_in * d_out + d_out * qkv_bias) + d_out * d_out + 3 * d_out,
    ),
]

parts = [
    Function(
        "count",
        lambda random: arguments(random, False),
        right=right,
        wrong=[
            *common,
            Wrong(
                "biases that nobody asked for",
                "3 · d_out biases are counted, but qkv_bias is False.",
                lambda d_in, d_out, H, bias: right(d_in, d_out, H, True),
            ),
            Wrong(
                "nothing without qkv_bias",
                "The condition takes all of the sum: `a + b if c else 0` is 0, or the rest alone, without c. Put "
                "it in parentheses.",
                lambda d_in, d_out, num_heads, qkv_bias: d_out * d_out + d_out,
            ),
        ],
    ),
    Function(
        "count",
        lambda random: arguments(random, True),
        right=right,
        wrong=[
            *common,
            Wrong(
                "qkv_bias ignored",
                "qkv_bias is True, but its biases are not counted.",
                lambda d_in, d_out, H, bias: right(d_in, d_out, H, False),
            ),
            Wrong(
                "one bias for three",
                "One bias of d_out = {1} numbers is counted for the queries, keys and values; each has its own.",
                lambda d_in, d_out, H, bias: right(d_in, d_out, H, False) + d_out,
            ),
            Wrong(
                "biases of width d_in",
                "The biases are counted as d_in = {0} numbers each; a bias is added to the output, which has d_out.",
                lambda d_in, d_out, H, bias: right(d_in, d_out, H, False) + 3 * d_in,
            ),
            Wrong(
                "bias of one number",
                "A bias has d_out numbers, not one.",
                lambda d_in, d_out, num_heads, qkv_bias: 3 * (d_in * d_out + qkv_bias) + d_out * d_out + d_out,
            ),
        ],
    ),
    Function(
        "gpt2_small",
        lambda random: (),
        right=lambda: 12 * right(768, 768, 12, True),
        wrong=[
            Wrong("one layer only", "That is one layer; GPT-2 small has 12.", lambda: right(768, 768, 12, True)),
            Wrong(
                "layers and heads",
                "Every layer is counted 12 times, once for each head; one layer makes all heads at once.",
                lambda: 144 * right(768, 768, 12, True),
            ),
            Wrong(
                "one layer, without qkv_bias",
                "That is one layer, and without the biases of queries, keys and values; GPT-2 small has 12 with them.",
                lambda: right(768, 768, 12, False),
            ),
            Wrong(
                "the number of the texts",
                "2,359,296 forgets out_proj's bias, has no qkv_bias, and is one layer of 12.",
                lambda: 4 * 768 * 768,
            ),
            Wrong(
                "without qkv_bias",
                "OpenAI's weights have biases for queries, keys and values: qkv_bias=True.",
                lambda: 12 * right(768, 768, 12, False),
            ),
            Wrong(
                "the whole model",
                "124 million is the whole model, with embeddings and feed-forward layers; here only attention is "
                "counted.",
                lambda: 124_439_808,
            ),
            Wrong(
                "number of the text",
                "That is 12 times 2,359,296, the number that some texts give: four matrices without a single bias.",
                lambda: 12 * 2359296,
            ),
            Wrong(
                "the whole model, rounded",
                "GPT-2 small has 124 million parameters in all; asked for are those of its attention layers.",
                lambda: 124_000_000,
            ),
            Wrong(
                "one head wide",
                "d_out is 768, the width of all heads together; 64 is one head.",
                lambda: 12 * (3 * (768 * 64 + 64) + 64 * 64 + 64),
            ),
        ],
        runs=1,
    ),
]

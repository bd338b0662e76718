"""Count the parameters of a layer.

nn.Linear(3, 2) has a weight of 2 × 3 = 6 numbers and a bias of 2: 8 in
all, and 6 with bias=False. A layer has four of them:

    W_query, W_key, W_value    d_in → d_out, a bias only if qkv_bias
    out_proj                   d_out → d_out, always with a bias

1. count: the parameters of one layer, as a formula.
2. gpt2_small: all 12 attention layers of GPT-2 small (768 wide, 12 heads,
   qkv_bias=True: OpenAI's weights have those biases).
Some texts give 2,359,296 for one layer of width 768 without qkv_bias.
Your formula will tell you what they forgot.
"""


def count(d_in, d_out, num_heads, qkv_bias):
    return ...


def gpt2_small():
    return ...

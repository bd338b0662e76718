def count(d_in, d_out, num_heads, qkv_bias):
    from math import prod

    weights = [(d_out, d_in)] * 3 + [(d_out, d_out)]
    biases = [(d_out,)] * (4 if qkv_bias else 1)
    return sum(prod(shape) for shape in weights + biases)


def gpt2_small():
    return sum(count(768, 768, 12, True) for layer in range(12))

# named: one layer only
def count(d_in, d_out, num_heads, qkv_bias):
    qkv = 3 * (d_in * d_out + (d_out if qkv_bias else 0))
    return qkv + d_out * d_out + d_out


def gpt2_small():
    return count(768, 768, 12, qkv_bias=True)

# named: transposed before the split
def split_heads(x, num_heads):
    B, T, E = x.shape
    head_dim = E // num_heads
    x = x.transpose(1, 2)
    return x.reshape(B, num_heads, T, head_dim)

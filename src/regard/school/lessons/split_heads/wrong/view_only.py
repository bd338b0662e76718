# named: split without transpose
def split_heads(x, num_heads):
    B, T, E = x.shape
    head_dim = E // num_heads
    x = x.view(B, num_heads, T, head_dim)
    return x

# named: wrong axes swapped
def split_heads(x, num_heads):
    B, T, E = x.shape
    head_dim = E // num_heads
    x = x.view(B, T, num_heads, head_dim)
    return x.transpose(2, 3)

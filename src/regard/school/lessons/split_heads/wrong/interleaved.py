# named: every other number
def split_heads(x, num_heads):
    B, T, E = x.shape
    head_dim = E // num_heads
    x = x.view(B, T, head_dim, num_heads)
    return x.permute(0, 3, 1, 2)

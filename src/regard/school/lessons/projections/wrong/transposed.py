# named: matrix transposed
def project(x, W_query, W_key, W_value):
    q = x @ W_query.T
    k = x @ W_key.T
    v = x @ W_value.T
    return q, k, v


def scores(q, k):
    return q @ k.T  # (T, T)

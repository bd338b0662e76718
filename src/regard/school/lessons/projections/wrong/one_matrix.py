# named: one matrix for all
def project(x, W_query, W_key, W_value):
    q = k = v = x @ W_query
    return q, k, v


def scores(q, k):
    return q @ k.T  # (T, T)

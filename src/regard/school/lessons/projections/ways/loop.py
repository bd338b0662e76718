def project(x, W_query, W_key, W_value):
    return tuple(x @ W for W in (W_query, W_key, W_value))


def scores(q, k):
    return q @ k.T  # (T, T)

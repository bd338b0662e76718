# named: values by W_key
def project(x, W_query, W_key, W_value):
    q = x @ W_query
    k = x @ W_key
    v = x @ W_key
    return q, k, v


def scores(q, k):
    return q @ k.T  # (T, T)

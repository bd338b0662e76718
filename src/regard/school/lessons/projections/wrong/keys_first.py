# named: keys before queries
def project(x, W_query, W_key, W_value):
    q = x @ W_query
    k = x @ W_key
    v = x @ W_value
    return q, k, v


def scores(q, k):
    return k @ q.T

# named: sums multiplied
def dot(a, b):
    return a.sum() * b.sum()

# named: products not added up
def dot(a, b):
    return a * b

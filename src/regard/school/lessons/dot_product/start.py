"""Compare two vectors with one number: the dot product.

Multiply number by number, then add up the products:

    [1, 2, 3] · [4, 5, 6]  =  1·4 + 2·5 + 3·6  =  4 + 10 + 18  =  32

The more two vectors point the same way, the larger it is. Attention uses
it to ask "how well does this word match that one?", for every two words.

Write it once by hand, with the loop below or in any other way. a and b are
tensors of the same length.
"""


def dot(a, b):
    total = 0.0
    for i in range(len(a)):
        ...
    return total

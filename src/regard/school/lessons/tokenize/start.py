"""Byte pairs: from text to tokens, as in GPT-2.

Every text is bytes, 0 to 255. That is a vocabulary already, but a word is
five tokens then. So the pair that occurs most often becomes a token of its
own, 256; then the next pair, 257, which may have 256 in it; and so on.

    "aa ab aa"       97 97 32 97 98 32 97 97        most often: (97, 97)
    (97, 97) → 256   256 32 97 98 32 256            next, say:  (256, 32)

Write `most_common`: the pair of neighbours that occurs most often, of
several the one that comes first in the text. `merge`: from left to right,
every such pair replaced. `encode`: the bytes of a text, with all merges done
in the order in which they were learned: merges[0] makes 256, merges[1] 257.
`decode` is the way back. Ids are lists of numbers.
"""


def most_common(ids):
    return ...  # (left, right)


def merge(ids, pair, new):
    ...  # a list


def learn(text, count):
    """The merges of a text, in order. (given)"""
    ids, merges = list(text.encode()), []
    for new in range(256, 256 + count):
        merges.append(most_common(ids))
        ids = merge(ids, merges[-1], new)
    return merges


def encode(text, merges):
    ids = list(text.encode())
    ...
    return ids


def decode(ids, merges):
    pieces = [bytes([one]) for one in range(256)]  # of each token, its bytes
    ...
    return b"".join(pieces[one] for one in ids).decode(errors="replace")


if __name__ == "__main__":
    merges = learn("the cat sat on the mat, the cat", 5)
    print([decode([256 + n], merges) for n in range(5)])

"""Byte pairs: from text to tokens, as in GPT-2."""

from collections import Counter


def most_common(ids):
    return Counter(zip(ids, ids[1:])).most_common(1)[0][0]


def merge(ids, pair, new):
    merged, at = [], 0
    while at < len(ids):
        if tuple(ids[at : at + 2]) == tuple(pair):
            merged.append(new)
            at += 2
        else:
            merged.append(ids[at])
            at += 1
    return merged


def learn(text, count):
    """The merges of a text, in order. (given)"""
    ids, merges = list(text.encode()), []
    for new in range(256, 256 + count):
        merges.append(most_common(ids))
        ids = merge(ids, merges[-1], new)
    return merges


def encode(text, merges):
    ids = list(text.encode())
    for number, pair in enumerate(merges):
        ids = merge(ids, pair, 256 + number)
    return ids


def decode(ids, merges):
    pieces = [bytes([one]) for one in range(256)]  # of each token, its bytes
    for left, right in merges:
        pieces.append(pieces[left] + pieces[right])
    return b"".join(pieces[one] for one in ids).decode(errors="replace")


if __name__ == "__main__":
    merges = learn("the cat sat on the mat, the cat", 5)
    print([decode([256 + n], merges) for n in range(5)])

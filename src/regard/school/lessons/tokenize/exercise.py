"""Byte pairs: from text to tokens."""

from collections import Counter

import torch

from regard.school.exercises import Function, Wrong

WORDS = "the cat sat on a mat and it saw a café there ".split(" ")


def text_of(random, count=14):
    return " ".join(WORDS[one] for one in torch.randint(len(WORDS), (count,), generator=random))


def most_common(ids):
    return Counter(zip(ids, ids[1:])).most_common(1)[0][0]


def merge(ids, pair, new):
    merged, at = [], 0
    while at < len(ids):
        is_pair = tuple(ids[at : at + 2]) == tuple(pair)
        merged.append(new if is_pair else ids[at])
        at += 1 + is_pair
    return merged


def learn(text, count):
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


def pieces_of(merges, swapped=False):
    pieces = [bytes([one]) for one in range(256)]
    for left, right in merges:
        pieces.append(pieces[right] + pieces[left] if swapped else pieces[left] + pieces[right])
    return pieces


def decode(ids, merges):
    pieces = pieces_of(merges)
    return b"".join(pieces[one] for one in ids).decode(errors="replace")


def some_ids(random):
    """One pair leads; it is not the first, not the largest, and begins at odd places only."""
    c, a, b, d = (97 + torch.randperm(20, generator=random)[:4]).sort().values.tolist()
    return ([c, a, b, c, d, a, b, c, d, a, b, d, b, d, c, c],)


def a_tie(random):
    a, b, c, d = (97 + torch.randperm(20, generator=random)[:4]).tolist()
    return ([d, a, c, b, c, b, a, a, c, d],)  # (a, c) and (c, b), twice each


def some_merge(random):
    a, b = (97 + torch.randperm(20, generator=random)[:2]).tolist()
    return [b, a, a, a, b, a, a, b, b, a, a, a, a, a], (a, a), 256 + int(torch.randint(9, (), generator=random))


def another_merge(random):
    a, b, c = (97 + torch.randperm(20, generator=random)[:3]).tolist()
    return [b, a, b, a, a, c, a, b, b, c, a, b, c], (a, b), 256 + int(torch.randint(9, (), generator=random))


def text_and_merges(random):
    text = text_of(random)
    return text_of(random) + text[:9], learn(text, 12)


def ids_and_merges(random):
    text = text_of(random)
    merges = learn(text, 12)
    return encode(text_of(random) + " é", merges), merges


def overlapping(ids, pair, new):
    merged = []
    for at, one in enumerate(ids):
        if tuple(ids[at : at + 2]) == tuple(pair):
            merged.append(new)
        elif not (at and tuple(ids[at - 1 : at + 1]) == tuple(pair)):
            merged.append(one)
    return merged


def first_only(ids, pair, new):
    at = next((at for at in range(len(ids)) if tuple(ids[at : at + 2]) == tuple(pair)), len(ids))
    return ids[:at] + [new] * (at < len(ids)) + ids[at + 2 :]


def right_kept(ids, pair, new):
    merged = []
    for at, one in enumerate(ids):
        merged.append(new if tuple(ids[at : at + 2]) == tuple(pair) else one)
    return merged


def either_order(ids, pair, new):
    merged, at = [], 0
    while at < len(ids):
        is_pair = tuple(ids[at : at + 2]) in (tuple(pair), tuple(pair)[::-1])
        merged.append(new if is_pair else ids[at])
        at += 1 + is_pair
    return merged


def from_right(ids, pair, new):
    return merge(ids[::-1], tuple(pair)[::-1], new)[::-1]


def last_lost(ids, pair, new):
    merged, at = [], 0
    while at < len(ids) - 1:
        is_pair = tuple(ids[at : at + 2]) == tuple(pair)
        merged.append(new if is_pair else ids[at])
        at += 1 + is_pair
    return merged


def backwards(text, merges):
    ids = list(text.encode())
    for number in reversed(range(len(merges))):
        ids = merge(ids, merges[number], 256 + number)
    return ids


def all_named(new_of):
    def encode(text, merges):
        ids = list(text.encode())
        for number, pair in enumerate(merges):
            ids = merge(ids, pair, new_of(number))
        return ids

    return encode


def singly(ids, merges):
    pieces = pieces_of(merges)
    return "".join(pieces[one].decode(errors="replace") for one in ids)


def of_pieces(ids, merges, grow):
    pieces = [bytes([one]) for one in range(256)]
    for left, right in merges:
        grow(pieces, left, right)
    return b"".join(pieces[one] for one in ids).decode(errors="replace")


def left_only(ids, merges):
    return of_pieces(ids, merges, lambda pieces, left, right: pieces.append(pieces[left]))


def at_front(ids, merges):
    return of_pieces(ids, merges, lambda pieces, left, right: pieces.insert(0, pieces[left] + pieces[right]))


def bytes_only(ids, merges):
    return bytes(one for one in ids if one < 256).decode(errors="replace")


OVERLAP = "A token is taken twice: in a a a, the pair (a, a) occurs at both places, but the first uses up the second a."
parts = [
    Function(
        "most_common",
        some_ids,
        most_common,
        wrong=[
            Wrong(
                "how often",
                "This is how often the pair occurs, or the pair with its number; wanted is the pair.",
                lambda ids: Counter(zip(ids, ids[1:])).most_common(1)[0],
            ),
            Wrong(
                "the count",
                "This is how often the pair occurs; wanted is the pair.",
                lambda ids: Counter(zip(ids, ids[1:])).most_common(1)[0][1],
            ),
            Wrong(
                "a token",
                "This is the most common token; wanted is a pair of neighbours.",
                lambda ids: Counter(ids).most_common(1)[0][0],
            ),
            Wrong(
                "pairs apart",
                "The text is cut into pairs, 0–1, 2–3, …; a pair may begin at every place.",
                lambda ids: Counter(zip(ids[::2], ids[1::2])).most_common(1)[0][0],
                why="Otherwise half of the neighbours never meet: 1 and 2, 3 and 4.",
            ),
            Wrong(
                "rarest",
                "This is the pair that occurs least often.",
                lambda ids: Counter(zip(ids, ids[1:])).most_common()[-1][0],
            ),
            Wrong("first pair", "This is the first pair of the text.", lambda ids: (ids[0], ids[1])),
            Wrong(
                "largest pair",
                "max compares the pairs themselves; compare how often they occur: key=counts.get.",
                lambda ids: max(zip(ids, ids[1:])),
            ),
            Wrong(
                "every other neighbour",
                "Tokens with one between them are paired; neighbours are, ids[1:].",
                lambda ids: Counter(zip(ids, ids[2:])).most_common(1)[0][0],
            ),
        ],
    ),
    Function(
        "most_common",
        a_tie,
        most_common,
        wrong=[
            Wrong(
                "last of a tie",
                "Two pairs occur as often, and this is the later one; wanted is the one that comes first.",
                lambda ids: [pair for pair, count in Counter(zip(ids, ids[1:])).items() if count == 2][-1],
                why="Any rule would do, but it must be a rule: who encodes must make the same choice as who learned.",
            ),
            Wrong(
                "largest of a tie",
                "Two pairs occur as often; wanted is the one that comes first in the text.",
                lambda ids: max(Counter(zip(ids, ids[1:])).items(), key=lambda one: (one[1], one[0]))[0],
            ),
            Wrong(
                "order of a pair ignored",
                "(a, b) and (b, a) are counted as one pair; the left token comes first, and these are two.",
                lambda ids: Counter(tuple(sorted(pair)) for pair in zip(ids, ids[1:])).most_common(1)[0][0],
            ),
            Wrong(
                "smallest of a tie",
                "Of several, the one with the smallest numbers is returned; it is the one that comes first in "
                "the text.",
                lambda ids: min((c := Counter(zip(ids, ids[1:]))), key=lambda one: (-c[one], one)),
            ),
        ],
        runs=10,
    ),
    *(
        Function(
            "merge",
            arguments,
            merge,
            wrong=[
                Wrong("overlapping", OVERLAP, overlapping, why="Each byte of the text belongs to one token.")
                if same
                else Wrong("either order", "(b, a) is merged like (a, b); the order counts.", either_order),
                Wrong("first only", "Only the first pair is merged; merge all of them.", first_only),
                Wrong(
                    "right one kept",
                    "The right token of a pair is still there after the new one; skip both.",
                    right_kept,
                ),
                *(
                    [
                        Wrong(
                            "from the right",
                            "Of three in a row, the last two are merged; go from left to right.",
                            from_right,
                        )
                    ]
                    if same
                    else []
                ),
                Wrong(
                    "last one lost", "The last token is missing. It has no right neighbour, but it stays.", last_lost
                ),
                Wrong("unchanged", "Nothing was merged.", lambda ids, pair, new: ids),
                Wrong(
                    "one past the end",
                    "There is no token after the last: ids[at + 1] fails there.",
                    raises="list index out of range",
                ),
            ],
        )
        for arguments, same in ((some_merge, True), (another_merge, False))
    ),
    Function(
        "encode",
        text_and_merges,
        encode,
        wrong=[
            Wrong(
                "backwards",
                "The merges are done from the last to the first; pairs that hold 256 do not exist yet then.",
                backwards,
            ),
            Wrong("bytes only", "No merge was done: these are the bytes.", lambda text, merges: list(text.encode())),
            Wrong(
                "all are 256", "Every merge makes token 256; the next makes 257, and so on.", all_named(lambda n: 256)
            ),
            Wrong(
                "from 257", "The first merge makes 257; 0 to 255 are bytes, so it is 256.", all_named(lambda n: 257 + n)
            ),
            Wrong(
                "from 0",
                "The merges make 0, 1, 2 …; these are bytes already. They begin at 256.",
                all_named(lambda n: n),
            ),
        ],
    ),
    Function(
        "decode",
        ids_and_merges,
        decode,
        wrong=[
            Wrong(
                "each decoded alone",
                "The pieces are made text one by one; é is two bytes, and half of it is no letter.",
                singly,
                why="Join the bytes first: a token may end within a letter.",
            ),
            Wrong("merged tokens left out", "Tokens from 256 on are left out.", bytes_only),
            Wrong(
                "right before left",
                "The two halves of a merged token are exchanged.",
                lambda ids, merges: b"".join(pieces_of(merges, swapped=True)[one] for one in ids).decode(
                    errors="replace"
                ),
            ),
            Wrong(
                "left half twice",
                "A token is what its left half is, twice; it is left and right.",
                lambda ids, merges: of_pieces(ids, merges, lambda pieces, left, _: pieces.append(2 * pieces[left])),
            ),
            Wrong(
                "no piece",
                "`pieces` ends at 255: every merge adds one piece, that of its left token and of its right one.",
                raises="list index out of range",
            ),
            Wrong(
                "a piece of numbers",
                "A piece is bytes: that of the left token and that of the right one, joined by +.",
                raises="a bytes-like object is required",
            ),
            Wrong(
                "left half only",
                "A token is only what its left half is; it is left and right.",
                lambda ids, merges: left_only(ids, merges),
            ),
            Wrong(
                "new pieces first",
                "New pieces are put at the front of the list, so that all others move: append.",
                lambda ids, merges: at_front(ids, merges),
            ),
        ],
    ),
]

"""Rotary positions."""

import torch

from regard.school.exercises import Function, Question, Wrong


def arguments(random):
    T, start = 5, int(torch.randint(2, 9, (), generator=random))
    return torch.randn(3, T, 6, generator=random), torch.arange(start, start + T)


def make_rotate(exponent=2, sign=1, interleaved=False, turn=None):
    def rotate(x, positions):
        D = x.shape[-1]
        speeds = 10_000.0 ** (-exponent * torch.arange(D // 2) / D)
        cos, sin = (positions[:, None] * speeds).cos(), sign * (positions[:, None] * speeds).sin()
        a, b = (x[..., 0::2], x[..., 1::2]) if interleaved else x.chunk(2, dim=-1)
        turned = [a * cos - b * sin, a * sin + b * cos] if turn is None else turn(a, b, cos, sin)
        return torch.stack(turned, dim=-1).flatten(-2) if interleaved else torch.cat(turned, dim=-1)

    return rotate


def turned_by(x, positions, speeds):
    cos, sin = (positions[:, None] * speeds).cos(), (positions[:, None] * speeds).sin()
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


right = make_rotate()


def one_sign(x, positions):
    D = x.shape[-1]
    angles = positions[:, None] * 10_000 ** (-torch.arange(0, D, 2) / D)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() - a * angles.sin()], dim=-1)


def added(x, positions):
    D = x.shape[-1]
    angles = positions[:, None] * 10_000 ** (-torch.arange(0, D, 2) / D)
    return x + torch.cat([angles.sin(), angles.cos()], dim=-1)


parts = [
    Function(
        "rotate",
        arguments,
        right,
        wrong=[
            Wrong(
                "neighbours paired",
                "Number 2i is paired with 2i + 1. Here i goes with i + D/2.",
                make_rotate(interleaved=True),
                why="Both are in use: the paper pairs neighbours, transformers pairs halves. Weights fit only "
                "one of them.",
            ),
            Wrong(
                "turned backwards",
                "The vectors turn clockwise: the signs of the two sines are exchanged.",
                make_rotate(sign=-1),
            ),
            Wrong(
                "no minus",
                "a' adds b·sin; it is a·cos − b·sin.",
                make_rotate(turn=lambda a, b, cos, sin: [a * cos + b * sin, a * sin + b * cos]),
                why="Without the minus this is no rotation: the length of the vector changes.",
            ),
            Wrong(
                "b' made of a'",
                "b' is computed from a' instead of a. Keep a until both are made.",
                make_rotate(turn=lambda a, b, cos, sin: [a * cos - b * sin, (a * cos - b * sin) * sin + b * cos]),
            ),
            Wrong(
                "one speed for all",
                "All pairs turn by the same angle, the position.",
                make_rotate(exponent=0),
                why="After about 6 positions such a clock starts again; the slow hands tell far places apart.",
            ),
            Wrong(
                "exponent i/D",
                "Pair i turns with the speed 10000^(−i/D); it is 10000^(−2i/D).",
                make_rotate(exponent=1),
            ),
            Wrong(
                "speeds grow",
                "Pair i turns by position × 10000^(+2i/D): the minus is missing.",
                make_rotate(exponent=-2),
            ),
            Wrong(
                "counted from 0",
                "The first token is taken to stand at position 0. Use `positions`.",
                lambda x, positions: right(x, torch.arange(len(positions))),
                why="With a cache, new tokens stand at the end of the text.",
            ),
            Wrong(
                "exponent 4i/D",
                "Pair i turns with the speed 10000^(−4i/D); it is 10000^(−2i/D).",
                make_rotate(exponent=4),
                why="torch.arange(0, D, 2) counts 0, 2, 4: that is 2i already.",
            ),
            Wrong(
                "first pair is 1",
                "The pairs are counted from 1; pair 0 turns by position × 1.",
                lambda x, positions: turned_by(x, positions, 10_000.0 ** (-2 * torch.arange(1, 4) / 6)),
            ),
            Wrong(
                "speeds not of 10000",
                "Pair i turns by position × −2i/D: that is the exponent. The speed is 10000 to its power.",
                lambda x, positions: turned_by(x, positions, -2 * torch.arange(3) / 6),
            ),
            Wrong(
                "speeds in steps",
                "The speeds fall by equal steps, 1 − 2i/D; they fall by equal factors, 10000^(−2i/D).",
                lambda x, positions: turned_by(x, positions, 1 - 2 * torch.arange(3) / 6),
            ),
            Wrong(
                "degrees",
                "The angles are taken as degrees; cos and sin of torch take radians, as they are.",
                lambda x, positions: turned_by(x, positions, 10_000.0 ** (-2 * torch.arange(3) / 6) * torch.pi / 180),
            ),
            Wrong(
                "positions not used",
                "Every token is turned by the same angles; token t turns by positions[t] × speed.",
                lambda x, positions: right(x, torch.ones_like(positions)),
            ),
            Wrong(
                "position 1 is the first",
                "The tokens are counted from 1. Use `positions`.",
                lambda x, positions: right(x, torch.arange(1, len(positions) + 1)),
                why="With a cache, new tokens stand at the end of the text.",
            ),
            Wrong(
                "second half as it was",
                "Only a is turned; b' is a·sin + b·cos.",
                make_rotate(turn=lambda a, b, cos, sin: [a * cos - b * sin, b]),
            ),
            Wrong(
                "b' without a",
                "b' is b·cos alone; it is a·sin + b·cos.",
                make_rotate(turn=lambda a, b, cos, sin: [a * cos - b * sin, b * cos]),
            ),
            Wrong(
                "base 1000",
                "The speeds are powers of 1000; here they are of 10000.",
                lambda x, positions: turned_by(x, positions, 1_000.0 ** (-2 * torch.arange(3) / 6)),
            ),
            Wrong(
                "sine and cosine exchanged",
                "cos and sin have changed places: at position 0 nothing may turn, and cos(0) = 1.",
                make_rotate(turn=lambda a, b, cos, sin: [a * sin - b * cos, a * cos + b * sin]),
            ),
            Wrong(
                "minus twice",
                "b' is a·sin − b·cos; the minus is in a' only.",
                make_rotate(turn=lambda a, b, cos, sin: [a * cos - b * sin, a * sin - b * cos]),
            ),
            Wrong(
                "minus in the wrong half",
                "a' is a·cos + b·sin and b' is a·sin − b·cos. The minus belongs to a', the plus to b'.",
                make_rotate(turn=lambda a, b, cos, sin: [a * cos + b * sin, a * sin - b * cos]),
            ),
            Wrong(
                "halves exchanged",
                "b' comes before a' in the result.",
                make_rotate(turn=lambda a, b, cos, sin: [a * sin + b * cos, a * cos - b * sin]),
            ),
            Wrong(
                "b only multiplied",
                "a is multiplied by cos and b by sin, or each half by both; every new number needs a and b.",
                make_rotate(turn=lambda a, b, cos, sin: [a * cos, b * sin]),
            ),
            Wrong(
                "only multiplied by cos",
                "Each half is multiplied by cos alone; every new number needs a and b.",
                make_rotate(turn=lambda a, b, cos, sin: [a * cos, b * cos]),
            ),
            Wrong(
                "neighbours read, halves written",
                "a and b are the even and the odd numbers, and are joined as halves. Take halves: x.chunk(2, dim=-1).",
                lambda x, positions: right(torch.cat([x[..., 0::2], x[..., 1::2]], dim=-1), positions),
            ),
            Wrong(
                "whole-number division",
                "2i is divided by D with //, which drops all that is below 1: pair 0 turns, the others stand still.",
                lambda x, positions: turned_by(x, positions, torch.tensor([1.0, 0.0, 0.0])),
            ),
            Wrong(
                "joined as pairs",
                "The halves were turned rightly, and put together as a0 b0 a1 b1 …; use cat.",
                lambda x, positions: torch.stack(right(x, positions).chunk(2, -1), dim=-1).flatten(-2),
            ),
            Wrong(
                "first half turned backwards",
                "The second number is b·cos − a·sin; it is a·sin + b·cos.",
                lambda x, positions: one_sign(x, positions),
            ),
            Wrong(
                "positions from 1",
                "Every token is turned by one position too many: token t stands at positions[t].",
                lambda x, positions: right(x, positions + 1),
            ),
            Wrong("added", "Sine and cosine are added to x; rotary turns x.", lambda x, positions: added(x, positions)),
        ],
    ),
    Question(
        "score",
        right="b",
        because={
            "a": "Turn two hands of a clock by the same angle more. What happens to the angle between them?",
            "c": "A score is a product of lengths and the cosine of the angle between. Which of these has changed?",
        },
    ),
]

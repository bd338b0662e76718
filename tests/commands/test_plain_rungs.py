"""The plain code of a rung: the same numbers, and nothing between a reader and the formula."""

import re

import pytest
import torch

from regard import ladder
from regard.commands.plain_rungs import RUNGS, rung_code


def run(number):
    names = {}
    exec(rung_code(number), names)
    return names


def test_rung_1_gives_the_same_numbers():
    torch.testing.assert_close(
        run(1)["simplified_attention"](ladder.VECTORS), ladder.simplified_attention(ladder.VECTORS)
    )
    assert run(1)["attend_by_loops"](ladder.VECTORS, 1) == ladder.attend_by_loops(ladder.VECTORS, 1)


@pytest.mark.parametrize(
    ("number", "name", "arguments"),
    [
        (2, "SelfAttention", (3, 2)),
        (3, "CausalAttention", (3, 2, 7, 0.0)),
        (4, "MultiHeadAttention", (3, 4, 7, 0.0, 2)),
    ],
)
def test_the_other_rungs_give_the_same_numbers(number, name, arguments):
    own, plain = getattr(ladder, name)(*arguments), run(number)[name](*arguments)
    plain.load_state_dict(own.state_dict())
    x = torch.randn(2, 5, 3)
    torch.testing.assert_close(plain(x), own(x))


@pytest.mark.parametrize("number", range(1, len(RUNGS) + 1))
def test_no_helper_type_or_check_is_left(number):
    code = rung_code(number)
    assert not re.search(r"step\(|check_|Float|jaxtyping|explain_|How to read|Tensor\b(?!s)| -> ", code)
    assert "What goes wrong without it" in code
    assert "\n        x\n" not in code

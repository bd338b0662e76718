"""Errors that name flags."""

import pytest

from regard.commands.errors import check_heads_flags, flags_named, name_flags


@pytest.mark.parametrize(
    ("message", "values", "expected"),
    [
        ("top_k (-1) must be at least 1", {"top_k": -1}, "--top-k -1 must be at least 1"),
        ("dtype ('fp16') must be", {"dtype": "fp16"}, "--dtype fp16 must be"),
        ("but context_length=512 needs 513", {"context_length": 512}, "but --context-length 512 needs 513"),
        ("warmup (9) must be at most steps (7)", {"warmup": 9, "steps": 7}, "--warmup 9 must be at most --steps 7"),
        ("build it with steps=70", {"steps": 7}, "build it with --steps 70"),
        ("my_steps (7), my_steps=7 and steps (8)", {"steps": 7}, "my_steps (7), my_steps=7 and steps (8)"),
        ("--seed (3) is known", {"seed": 3}, "--seed (3) is known"),
        ("out (a\\b)", {"out": "a\\b"}, "--out a\\b"),
    ],
)
def test_only_an_argument_with_its_own_value_becomes_a_flag(message, values, expected):
    assert name_flags(message, values) == expected


def test_an_error_without_flags_is_raised_as_it_was():
    original = ValueError("the disk is full")
    with pytest.raises(ValueError, match=r"^the disk is full$") as caught, flags_named(steps=7):
        raise original
    assert caught.value is original


def test_an_error_keeps_its_cause():
    with pytest.raises(ValueError, match=r"^--steps 7 are too many$") as caught, flags_named(steps=7):
        raise ValueError("steps (7) are too many")
    assert str(caught.value.__cause__) == "steps (7) are too many"


def test_heads_that_do_not_divide_the_width_are_named_by_their_flags():
    check_heads_flags(768, 12)
    with pytest.raises(ValueError, match=r"^--d-model 768 is not divisible by --heads 7; try --heads 6, 8 or 12$"):
        check_heads_flags(768, 7)
    with pytest.raises(ValueError, match=r"^--heads 12 is not divisible by --kv-heads 5; try --kv-heads 4, 6 or 12$"):
        check_heads_flags(12, 5, width="--heads", count="--kv-heads")

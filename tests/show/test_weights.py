"""Weights as aligned text."""

import torch

from regard.show.weights import weights_table


def test_every_line_fits_eighty_columns_and_says_what_is_left_out():
    words = [f"word{i}" for i in range(30)]
    lines = weights_table(torch.rand(30, 30), words, words, width=80).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[-1].strip() == "… and 22 more keys"


def test_a_long_word_does_not_push_the_numbers_out_of_line():
    words = ["a", "Donaudampfschifffahrt"]
    head, first, second = weights_table(torch.eye(2), words, words).splitlines()
    assert len(head) == len(first) == len(second)
    assert "Donaudamp…" in head


def test_a_weight_of_exactly_zero_is_a_dot_and_a_small_one_is_a_number():
    weights = torch.tensor([[1.0, 0.0, 0.0], [0.001, 0.999, 0.0]])
    assert weights_table(weights, ["The", "cat"], ["The", "cat", "sat"], digits=3).splitlines() == [
        "         The    cat    sat",
        "  The  1.000      ·      ·",
        "  cat  0.001  0.999      ·",
    ]


def test_no_token_is_no_error():
    assert weights_table(torch.zeros(0, 0), [], []) == ""

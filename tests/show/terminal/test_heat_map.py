"""A head as a heat map in a terminal."""

from types import SimpleNamespace

import pytest
import torch
from rich.cells import cell_len

import regard
from regard.show.terminal.heat_map import head_picture, heat_map, means_in_lines


def watched(T, causal=True, tokens=None, S=None, seed=5):
    torch.manual_seed(seed)
    layer = regard.MultiHeadAttention(d_in=6, d_out=6, context_length=None, dropout=0.0, num_heads=2, causal=causal)
    context = None if S is None else torch.randn(1, S, 6)
    with torch.no_grad(), regard.watch(layer, tokens=tokens) as seen:
        layer(20 * torch.randn(1, T, 6), context)
    return seen[0, 1]


def test_bars_are_as_high_as_the_weights_and_hidden_keys_have_none():
    words = ["The", " cat", " sat"]
    head = watched(3, tokens=words)
    lines = heat_map(head, 80).splitlines()
    assert lines[0].split() == ["The", "cat", "sat"]
    for row, line in enumerate(lines[1:4]):
        bars = line[7:25]
        for col, weight in enumerate(head.weights(rows=row)[0, 0].tolist()):
            wanted = " " if col > row else "·▁▂▃▄▅▆▇█"[round(weight**0.6 * 8)]
            assert bars[6 * col] == wanted
    assert "The 1.00" in lines[1]
    assert "A row is a token; its bars add up to 1: · 0 ▂ 0.1 ▃ 0.25 ▅ 0.5 █ 1" in lines[5]


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("T", [1, 2, 13, 47, 211])
def test_no_line_is_wider_than_the_terminal(T, width):
    assert max(map(len, heat_map(watched(T), width).splitlines())) <= width


def test_more_keys_than_columns_are_added_up():
    head = watched(3, causal=False, S=101)
    lines = heat_map(head, 60).splitlines()
    columns = len(lines[0].split("  ")[2])
    assert f"Each column is {101 // columns} or {101 // columns + 1} positions." in lines[-1]


def test_a_long_text_shows_its_last_rows():
    lines = heat_map(watched(53), 80).splitlines()
    assert lines[0].split()[0] == "13"
    assert lines[40] == "  (the last 40 of 53 positions)"


def test_tokens_of_cross_attention_are_numbered():
    lines = heat_map(watched(3, causal=False, S=5), 80).splitlines()
    assert lines[0].split() == ["0", "1", "2", "3", "4"]
    assert [line.split()[0] for line in lines[1:4]] == ["0", "1", "2"]


def test_cross_attention_is_said_and_self_attention_is_not():
    said = "Columns are of another text than rows: this is cross-attention."
    assert said in heat_map(watched(3, causal=False, S=5), 80)
    assert said not in heat_map(watched(3, causal=False), 80)


def test_bars_are_below_each_other_where_characters_take_two_columns():
    lines = heat_map(watched(3, tokens=["猫", "👩", "cat"]), 80).splitlines()
    assert [cell_len(line[: line.index(next(c for c in line if c in "·▁▂▃▄▅▆▇█"))]) for line in lines[1:4]] == [7, 7, 7]
    assert cell_len(lines[0][: lines[0].index("cat")]) == 7 + 2 * 6
    assert max(map(cell_len, heat_map(watched(11, tokens=["猫が座った"] * 11), 60).splitlines()[:11])) <= 60


def test_a_model_without_tokens_has_positions():
    assert "A row is a position; its bars add up to 1" in heat_map(watched(3), 80)


def test_a_picture_names_means_as_tables_do():
    head = watched(5)
    numbers = head_picture(head, 200).splitlines()[2].split()
    assert numbers[numbers.index("first") + 1] == f"{head.summary['sink']:.2f}"
    assert "sink" not in numbers


@pytest.mark.usefixtures("without_shape_checks")  # a stand-in is no Head
def test_means_have_the_headings_of_tables_and_the_name_in_python_once():
    head = SimpleNamespace(summary={"entropy": 0.211, "sink": 0.5, "next": 0.25, "induction": float("nan")})
    assert means_in_lines(head, 40) == [
        "  entropy 0.21  first 0.50  next 0.25",
        "  first: weight on the first token; in",
        "    Python: .sink",
    ]

"""A head as a heat map in a terminal."""

from types import SimpleNamespace

import pytest
import torch
from rich.cells import cell_len

import regard
from heads.dense import pattern
from heads.made_calls import made_call
from heads.reports import seen_of
from regard.heads.inputs.pieces import WordReader
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


@pytest.fixture
def seen():
    """Two heads: one looks at the token before, the other at the first."""
    words = ["the", "cat", "sat", "on", "the"]
    reader = WordReader([words])
    weights = torch.cat([pattern(lambda i: max(i - 1, 0), 5, weight=0.9), pattern(lambda i: 0, 5, weight=0.9)], 1)
    return seen_of(made_call("h", weights=weights, tokens=torch.tensor(reader.ids)), reader=reader)


def test_a_row_says_where_the_token_looks_and_who_looks_at_it(seen):
    lines = repr(seen.at("sat")).splitlines()
    assert lines[0] == "  sat · position 2 · 2 heads in 1 layer"
    assert lines[2].split("  ")[-2:] == ["looks at", "looked at by"] or "looked at by" in lines[2]
    assert lines[3].split()[0] == "0.0"
    assert "cat 0.9" in lines[3]
    assert "on 0.9" in lines[3]
    assert "the@0 0.9" in lines[4]
    assert lines[-1] == "  the@0 is at position 0, because the occurs several times"


@pytest.mark.parametrize("width", [60, 80, 120])
def test_every_line_keeps_to_the_width(width):
    model = regard.GPT.from_pretrained("tiny")
    with torch.no_grad(), regard.watch(model) as seen:
        model(torch.tensor([model.tokenizer.encode("Alice was beginning to get very tired of it")]))
    token = seen.at("tired")
    assert max(map(len, token.table(width).splitlines())) <= width
    assert "  … and 32 more heads: .table(all=True)" in token.table(width).splitlines()
    assert sum(line[2:4] in ("0.", "1.", "2.", "3.", "4.", "5.") for line in token.table(all=True).splitlines()) == 48


def test_a_notebook_shows_the_same_and_no_markup_of_the_text():
    layer = regard.MultiHeadAttention(d_in=6, d_out=6, context_length=7, dropout=0.0, num_heads=2)
    with torch.no_grad(), regard.watch(layer, tokens=["<b>", "cat"]) as seen:
        layer(torch.randn(1, 2, 6))
    page = seen.at("cat")._repr_html_()
    assert "<b>" not in page
    assert "&lt;b&gt;" in page
    assert "<td style='text-align:left'>0.1</td>" in page

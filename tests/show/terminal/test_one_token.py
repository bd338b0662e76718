"""One token in every head, as a table."""

import pytest
import torch

import regard
from heads.dense import pattern
from heads.made_calls import made_call
from heads.reports import seen_of
from regard.heads.inputs.pieces import WordReader


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

"""A trace as a table, in text and in HTML."""

import io
import re
import sys

import torch

import regard.commands.terminal.ascii  # noqa: F401  registers the error handler
from regard import MultiHeadAttention, step, trace

LAYER = {"d_in": 6, "d_out": 15, "context_length": 11, "dropout": 0.0, "num_heads": 3}


def test_the_table_is_aligned_and_fits_its_width():
    t = trace(MultiHeadAttention(**LAYER, rotary=False, window=5, qkv_bias=True), torch.randn(2, 7, 6))
    for width in (60, 80, 120):
        lines = t.table(width).splitlines()
        assert max(map(len, lines)) <= width
        assert lines[0].startswith("  MultiHeadAttention · ")
        assert lines[2].split() == ["step", "operation", "shape", "why"]
        starts = {line.index(cell) for line, cell in zip(lines[2:4], ("operation", "input"), strict=True)}
        assert len(starts) == 1


def test_a_narrow_table_still_fits_and_names_what_is_left_out():
    t = trace(MultiHeadAttention(**LAYER), torch.randn(2, 7, 6))
    for width in (31, 40):
        assert max(map(len, t.table(width).splitlines())) <= width
        assert re.search(r"not shown at\s+this\s+width:\s+(shape, )?why", t.table(width))


def test_where_it_is_too_wide_shapes_are_short_and_texts_go_on_in_the_next_line():
    with trace() as t:
        step("scores", torch.ones(2, 3, 5), "queries @ keys.mT", "every query, every key")
        step("out", torch.ones(2, 3, 7), "out_proj(context)", "heads mixed")
    assert t.table(50) == (
        "  2 steps · float32\n\n"
        "  step    operation          shape  why\n"
        "  scores  queries @ keys.mT  2×3×5  every query,\n"
        "                                    every key\n"
        "  out     out_proj(context)  2×3×7  heads mixed"
    )


def test_columns_are_aligned_where_stdout_knows_no_unicode(monkeypatch):
    with trace() as t:
        step("scaled", torch.ones(2), "scores / √64", "variance")
        step("mask", torch.ones(2), "−∞", "hidden keys get −∞")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="regard.ascii"))
        table = t.table()
    assert table.splitlines()[2:] == [
        "  step    operation          shape  why",
        "  scaled  scores / sqrt(64)  2      variance",
        "  mask    -inf               2      hidden keys get -inf",
    ]


def test_what_keys_and_values_share_with_queries_is_shown_once():
    t = trace(MultiHeadAttention(**LAYER), torch.randn(2, 7, 6))
    assert "split keys" in t.names
    assert "split keys" not in t.table()
    grouped = trace(MultiHeadAttention(**LAYER, num_kv_heads=1), torch.randn(2, 7, 6))
    assert "split keys" in grouped.table()


def test_a_table_of_one_step_and_of_none():
    with trace() as t:
        step("x", torch.ones(2, 3), "input")
    assert t.table() == (
        "  1 step · float32\n\n  step  operation  shape  why\n  x     input      2 × 3  one vector per token"
    )
    assert trace().table().splitlines()[0] == "  0 steps"


def test_a_trace_prints_as_its_table(monkeypatch):
    monkeypatch.setenv("COLUMNS", "70")
    t = trace(MultiHeadAttention(**LAYER), torch.randn(2, 7, 6))
    assert repr(t) == t.table(70)


def test_html_escapes_whatever_a_step_is_called():
    with trace() as t:
        step("<b>x</b>", torch.ones(1), 'a < b & "c"', "<script>alert('why')</script>")
    page = t._repr_html_()
    assert "<script>" not in page
    assert "<b>" not in page
    assert "&lt;script&gt;alert(&#x27;why&#x27;)&lt;/script&gt;" in page
    assert "a &lt; b &amp; &quot;c&quot;" in page


def test_html_has_a_row_for_every_row_of_the_table():
    t = trace(MultiHeadAttention(**LAYER), torch.randn(2, 7, 6))
    assert t._repr_html_().count("<tr>") == len(t.table().splitlines()) - 2

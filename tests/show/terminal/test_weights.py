"""Matrices as aligned text."""

import torch

from regard import MultiHeadAttention, trace
from regard.ladder import SENTENCE, VECTORS, simplified_attention
from regard.show.terminal.weights import (
    belongs_to_a_head,
    channels_table,
    heads_of,
    marks_legend,
    matrix_of,
    short_label,
    step_matrix,
    weights_table,
)

WORDS = ["The", "cat", "sat"]  # as many as there are heads, so that the axes cannot be told apart by size


def test_keys_that_do_not_fit_come_in_a_table_below():
    words = [f"word{i}" for i in range(17)]
    weights = torch.rand(17, 17).tril() + 0.01 * torch.eye(17)
    tables = weights_table(weights, words, words, width=80).split("\n\n")
    assert max(len(line) for table in tables for line in table.splitlines()) <= 80
    first = len(tables[0].splitlines()[0].split())
    assert [table.splitlines()[0].split() for table in tables] == [words[:first], words[first:]]
    # Rows that see none of the keys are left out.
    assert [len(table.splitlines()) - 1 for table in tables] == [17, 17 - first]


def test_keys_beyond_four_tables_are_named():
    words = [f"word{i}" for i in range(40)]
    *tables, last = weights_table(torch.rand(40, 40), words, words, width=80).split("\n\n")
    assert len(tables) == 4
    shown = sum(len(table.splitlines()[0].split()) for table in tables)
    assert last == f"  … and {40 - shown} more keys: {', '.join(words[shown:])}"
    assert len(last) <= 80


def test_keys_that_nobody_sees_need_no_table():
    words = [f"word{i}" for i in range(17)]
    weights = torch.ones(17, 17)
    weights[:, 9:] = 0
    assert "\n\n" not in weights_table(weights, words, words, width=80)


def test_names_in_several_tables_are_short_and_keep_their_position():
    words = [f"beginning@{i}" for i in range(20)]
    text = weights_table(torch.rand(20, 20), words, words)
    assert "beg…@12" in text
    assert short_label("beginning@12", 7) == "beg…@12"
    assert short_label("someone@example", 7) == "someon…"


def test_a_score_of_zero_is_a_number_and_a_hidden_one_a_dot():
    scores = torch.tensor([[0.0, -torch.inf], [-0.004, -1.5]])
    assert weights_table(scores, ["The", "cat"], ["The", "cat"], zero_is_hidden=False).splitlines() == [
        "         The    cat",
        "  The   0.00      ·",
        "  cat   0.00  −1.50",
    ]


def test_channels_that_do_not_fit_are_named_by_their_numbers():
    lines = channels_table(torch.rand(2, 40), ["The", "cat"], first=64, width=40).splitlines()
    assert lines[0].split() == ["64", "65", "66", "67", "68"]
    assert lines[-1] == "  … and 35 more channels: 69 to 103"
    assert max(map(len, lines)) <= 40


def test_marks_are_explained_only_where_there_are_some():
    assert marks_legend(["The", "cat"]) == ""
    assert marks_legend(["Al", "##ice"]) == "##ice continues the word before it."
    assert marks_legend(["@home", "a@b", "the@1"]) == "the@1 is the token at position 1, from 0."


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


def test_where_the_width_is_too_small_columns_are_narrower_then_numbers_shorter():
    scores, words = torch.tensor([[0.12345, -0.5], [1.0, 2.0]]), ["a", "journey"]
    assert weights_table(scores, words, words, width=31, digits=4).splitlines()[2] == "  journey   1.0000   2.0000"
    assert weights_table(scores, ["a", "b"], words, width=20, digits=4).splitlines() == [
        "          a  journey",
        "  a  0.1235  −0.5000",
        "  b  1.0000   2.0000",
    ]
    assert weights_table(scores, ["a", "b"], words, width=19, digits=4).splitlines() == [
        "         a  journey",
        "  a  0.123   −0.500",
        "  b  1.000    2.000",
    ]


def layer_trace():
    torch.manual_seed(1)
    return trace(MultiHeadAttention(d_in=5, d_out=6, context_length=7, dropout=0.0, num_heads=3), torch.randn(1, 3, 5))


def numbers(table):
    return [[float(n.replace("−", "-")) for n in line.split()[1:] if n != "·"] for line in table.splitlines()[1:]]


def test_scores_are_queries_by_keys_of_one_head():
    t = layer_trace()
    table, legend = step_matrix(t.find("scores"), WORDS, head=1, heads=3)
    expected = [[round(x, 2) for x in row] for row in t["scores"][0, 1].tolist()]
    assert numbers(table) == expected
    assert legend.splitlines()[0] == "  Row: the token that looks, its query. Column: the token it looks at, its key."


def test_hidden_scores_are_dots_and_explained():
    table, legend = step_matrix(layer_trace().find("mask"), WORDS, head=0, heads=3)
    assert [line.count("·") for line in table.splitlines()] == [0, 2, 1, 0]
    assert "· is hidden" in legend
    assert "· is hidden" not in step_matrix(layer_trace().find("scores"), WORDS, head=0, heads=3)[1]


def test_split_and_transposed_heads_are_told_apart_by_the_name_of_the_step():
    t = layer_trace()
    for name in ("split", "transpose"):
        table, _ = step_matrix(t.find(name), WORDS, head=2, heads=3)
        assert numbers(table) == [[round(x, 2) for x in row] for row in t["transpose"][0, 2].tolist()]


def test_queries_show_the_channels_of_the_head_and_x_the_first():
    t = layer_trace()
    table, legend = step_matrix(t.find("queries"), WORDS, head=2, heads=3, width=89)
    assert table.splitlines()[0].split() == ["4", "5"]
    assert legend == "  Row: a token. Column: one of its 6 numbers, its channels; 4 to 5 are those of head 2."
    table, legend = step_matrix(t.find("x"), WORDS, head=2, heads=3)
    assert table.splitlines()[0].split() == ["0", "1", "2", "3", "4"]
    assert legend == "  Row: a token. Column: one of its 5 numbers, its channels."


def test_steps_know_whether_they_belong_to_a_head():
    t = layer_trace()
    assert [heads_of(t.find(name)) for name in ("x", "queries", "split", "weights", "out")] == [1, 1, 3, 3, 1]
    assert belongs_to_a_head(t.find("queries"))
    assert not belongs_to_a_head(t.find("out"))


def test_the_first_rung_has_no_batch():
    with trace() as t:
        simplified_attention(VECTORS)
    table, _ = step_matrix(t.find("weights"), SENTENCE, head=0, heads=1, digits=4)
    assert "journey   0.1385   0.2379   0.2333   0.1240   0.1082   0.1581" in table


def test_one_text_and_one_head_are_chosen_also_in_the_second_run_of_a_layer():
    layer = MultiHeadAttention(d_in=5, d_out=6, context_length=7, dropout=0.0, num_heads=3)
    with trace() as t:
        for _ in range(2):
            layer(torch.randn(2, 3, 5))
    for name in ("split", "split 2"):
        assert torch.equal(matrix_of(t.find(name), head=2, text=1), t[name][1, :, 2])
    assert torch.equal(matrix_of(t.find("scores 2"), head=2, text=1), t["scores 2"][1, 2])
    assert torch.equal(matrix_of(t.find("out"), head=0, text=1), t["out"][1])


def test_the_legend_keeps_to_the_width():
    t = layer_trace()
    for name in ("queries", "mask"):
        table, legend = step_matrix(t.find(name), WORDS, head=2, heads=3, width=41)
        assert max(map(len, f"{table}\n{legend}".splitlines())) <= 41

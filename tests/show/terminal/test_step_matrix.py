"""One step of a trace as a matrix."""

import torch

from regard import MultiHeadAttention, trace
from regard.ladder import SENTENCE, VECTORS, simplified_attention
from regard.show.terminal.step_matrix import belongs_to_a_head, heads_of, matrix_of, step_matrix

WORDS = ["The", "cat", "sat"]  # as many as there are heads, so that the axes cannot be told apart by size


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

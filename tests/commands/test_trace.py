"""`regard trace` as a person types it."""

from typer.testing import CliRunner

from regard.cli import app


def trace(*arguments):
    return CliRunner().invoke(app, ["trace", *arguments])


def test_trace_prints_the_shapes_of_any_size_without_computing_them():
    result = trace("--tokens", "100000", "--d-model", "768", "--heads", "12", "--batch", "4")
    assert result.exit_code == 0
    assert "4 × 12 × 100000 × 100000" in result.output
    assert "2,360,064 parameters" in result.output


def test_trace_keeps_to_eighty_columns():
    result = trace("--tokens", "100", "--batch", "4")
    assert max(map(len, result.output.splitlines())) <= 80
    assert "…" not in result.output


def test_the_worked_example_shows_four_rungs_and_the_books_figures():
    result = trace()
    assert result.exit_code == 0
    for title in ("1  simplified", "2  self-attention", "3  causal", "4  multi-head"):
        assert title in result.output
    assert "journey   0.1385   0.2379   0.2333   0.1240   0.1082   0.1581" in result.output


def test_a_sentence_of_ones_own_is_followed_word_by_word():
    result = trace("The cat sat on the mat")
    assert result.exit_code == 0
    assert "6 tokens" in result.output
    assert "weights of head 1" in result.output


def test_the_same_word_has_the_same_vector_each_time():
    once, again = (trace("the cat the cat").output for _ in range(2))
    assert once == again


def test_grouped_heads_show_their_own_shape():
    result = trace("--tokens", "7", "--d-model", "24", "--heads", "4", "--kv-heads", "2")
    assert "1 × 7 × 2 × 6" in result.output


def test_without_causal_every_word_looks_at_every_word():
    shown, hidden = (trace("the cat sat", flag).output for flag in ("--no-causal", "--causal"))
    assert " ·" in hidden.split("weights of head 0")[1]
    assert " ·" not in shown.split("weights of head 0")[1]


def test_the_memory_of_the_weights_is_that_of_all_heads():
    assert "The weights alone would be 1.5 MiB in float32" in trace("--tokens", "256", "--heads", "6").output

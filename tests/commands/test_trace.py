"""`regard trace` as a person types it."""

import pytest
import torch
from typer.testing import CliRunner

import regard
from regard.cli import app

SENTENCE = "The cat sat on the mat"


def trace(*arguments):
    return CliRunner().invoke(app, ["trace", *arguments])


def refused(*arguments):
    result = trace(*arguments)
    assert isinstance(result.exception, ValueError), result.output
    return str(result.exception)


def test_trace_prints_the_shapes_of_any_size_without_computing_them():
    result = trace("--tokens", "100000", "--d-model", "768", "--heads", "12", "--batch", "4")
    assert result.exit_code == 0
    assert "4×12×100000×100000" in result.output  # without spaces, because the table is wide
    assert "2,360,064 parameters" in result.output
    assert "Shapes: 4 texts, 100000 tokens, 768 numbers per token in 12 heads of 64." in result.output


@pytest.mark.parametrize(
    "arguments", [(), ("--step", "mask"), ("--step", "dropout"), ("--tokens", "100", "--batch", "4"), (SENTENCE,)]
)
def test_trace_keeps_to_eighty_columns(arguments):
    result = trace(*arguments)
    assert result.exit_code == 0
    assert max(map(len, result.output.splitlines())) <= 80


def test_the_worked_example_shows_four_rungs_and_the_books_figures():
    result = trace()
    assert result.exit_code == 0
    for title in ("1  simplified", "2  self-attention", "3  causal", "4  multi-head"):
        assert title in result.output
    assert "journey   0.1385   0.2379   0.2333   0.1240   0.1082   0.1581" in result.output


def test_a_step_of_the_worked_example_is_shown_for_every_rung_that_has_it():
    output = trace("--step", "scores").output
    assert "journey   0.9544   1.4950   1.4754   0.8434   0.7070   1.0865" in output
    assert "scores of head 1: queries @ keys.mT" in output
    assert "operation" not in output  # no table of steps
    output = trace("--step", "mask").output
    assert output.count("No step is called mask here.") == 2
    assert "Your     −0.2327        ·" in output
    assert "journey  0.4419  0.6515  0.5683" in trace("--step", "context").output


def test_a_sentence_goes_through_the_trained_model():
    result = trace(SENTENCE)
    assert result.exit_code == 0
    assert "tiny, the trained model in the package: 6 layers × 8 heads" in result.output
    assert "6 tokens · head 0.2: head 2 of layer 0" in result.output
    assert "Chosen as the clearest role for this text: rare roles first, first token" in result.output
    assert "  sat  0.00  0.99  0.00     ·     ·     ·" in result.output
    assert "Each row sums to 1. · is hidden: no token may look at later ones." in result.output


@pytest.mark.parametrize("options", [(), ("--head", "4.3")], ids=["first", "chosen"])
def test_a_text_too_short_for_roles_says_so(options):
    output = trace("hello", *options).output
    assert "  No role: that needs at least 4 tokens, and this text has 3.\n" in output
    assert "clear" not in output


def test_the_numbers_are_those_of_the_model():
    model = regard.GPT.from_pretrained("tiny")
    with torch.no_grad(), regard.trace() as t:
        model(torch.tensor([model.tokenizer.encode(SENTENCE)]))
    for number in (1, 5):  # the fifth layer's steps have a 5 behind their names
        name = "scaled" if number == 1 else f"scaled {number}"
        row = t[name][0, 3, 2]
        shown = "  ".join(f"{x:6.2f}".replace("-", "−") for x in row[:3].tolist())
        output = trace(SENTENCE, "--head", f"{number - 1}.3", "--step", "scaled").output
        assert [*shown.split()] == output.split("\n  sat")[1].split()[:3]


def test_the_head_can_be_chosen_in_two_ways():
    assert "head 4.3: head 3 of layer 4" in trace(SENTENCE, "--head", "4.3").output
    assert trace(SENTENCE, "--layer", "4", "--head", "3").output == trace(SENTENCE, "--head", "4.3").output
    assert "the clearest role in layer 2 for this text" in trace(SENTENCE, "--layer", "2").output


def test_a_step_that_is_no_matrix_of_keys_shows_the_channels_of_the_head():
    output = trace(SENTENCE, "--head", "1.7", "--step", "queries").output
    assert "queries of head 1.7: W_query(x)" in output
    assert "64 numbers" not in output
    assert "its channels; 224 to 255 are those of head 7." in " ".join(output.split())
    assert "x: input" in trace(SENTENCE, "--step", "x").output


def test_pieces_and_repeated_words_are_marked_and_explained():
    output = trace("Alice and Alice sat").output
    assert "##ice@1" in output
    assert "##ice@1 continues the word before it; Al@0 is the token at position 0, from 0." in output
    assert "continues the word" not in trace(SENTENCE).output


def test_grouped_heads_show_their_own_shape():
    result = trace("--tokens", "7", "--d-model", "24", "--heads", "4", "--kv-heads", "2")
    assert "1 × 7 × 2 × 6" in result.output
    assert "2 heads of 6" in result.output


def test_without_causal_there_is_no_mask():
    assert "mask" in trace("--tokens", "7").output
    assert "mask" not in trace("--tokens", "7", "--no-causal").output


def test_the_memory_of_the_weights_is_that_of_all_heads():
    assert "The weights alone would be 1.5 MiB in float32" in trace("--tokens", "256", "--heads", "6").output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--tokens 10 --heads 7", "--d-model 768 is not divisible by --heads 7; try --heads 6, 8 or 12"),
        ("--tokens 10 --d-model 6 --heads 7", "--d-model 6 is not divisible by --heads 7; try --heads 6"),
        ("--tokens 10 --kv-heads 5", "--heads 12 is not divisible by --kv-heads 5; try --kv-heads 4, 6 or 12"),
        ("--d-model 12", "--d-model cannot be used here: the worked example has its own sizes"),
        ("--batch 1", "--batch cannot be used here: the worked example has its own sizes"),
        ("--head 4.3", "--head cannot be used here: the worked example shows every head"),
        (
            "cat --d-model 12 --heads 3",
            "--d-model and --heads cannot be used here: a sentence goes through the trained",
        ),
        ("cat --no-causal", "--no-causal cannot be used here: a sentence goes through the trained model"),
        ("cat --causal", "--causal cannot be used here: a sentence goes through the trained model"),
        ("cat --tokens 3", "give a sentence or --tokens, not both"),
        ("--tokens 3 --step scores", "--step cannot be used here: --tokens shows shapes only"),
        ("cat --head 3", "--head 3 needs a layer to be in; add --layer 0, or write --head 0.3"),
        ("cat --head 4.3 --layer 2", "--head 4.3 is of layer 4, but --layer is 2; leave one of them out"),
        ("cat --head x", "--head x must be a number, such as 3; or 4.3, head 3 of layer 4"),
        ("cat --head 6.0", "layer 6 does not exist: the model has 6 layers, 0 to 5"),
        ("cat --head 0.8", "head 8 does not exist: a layer has 8 heads, 0 to 7"),
        ("cat --step colour", "--step colour is not a step of this layer; it has x, queries, keys, values, split"),
        ("--step colour", "--step colour is not a step of the ladder; it has x, queries, keys, values, split"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_remedy(arguments, message):
    assert refused(*arguments.split()).startswith(message)


def test_an_empty_sentence_and_one_that_is_too_long_are_refused():
    assert refused(" ") == 'the sentence is empty; try: regard trace "The cat sat on the mat"'
    assert refused("cat " * 600).endswith("tokens, and tiny reads at most 512; shorten it")

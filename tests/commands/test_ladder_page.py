"""The ladder in a page: the rungs of `regard trace`, with the same numbers."""

import torch

from regard import ladder
from regard.commands.ladder_page import ladder_reports
from regard.show.page.payload import page_data


def test_each_rung_is_a_report_with_all_of_its_steps():
    document = page_data(ladder_reports()).document
    names = [[step["name"] for step in report["layers"][0]["steps"]] for report in document["reports"]]
    assert names[0] == ["x", "scores", "weights", "context"]
    assert names[1] == ["x", "queries", "keys", "values", "scores", "scaled", "weights", "context"]
    assert set(names[2]) - set(names[1]) == {"mask", "dropout"}
    assert names[3][-3:] == ["back", "concat", "out"]
    assert [len(report["layers"][0]["heads"]) for report in document["reports"]] == [1, 1, 1, 2]


def test_weights_are_those_of_the_trace():
    for report in ladder_reports():
        shape = report.seen[0].weights().shape
        torch.testing.assert_close(report.seen[0].weights(), report.steps[0]["weights"].reshape(shape))


def test_the_rungs_are_those_that_the_command_shows():
    torch.manual_seed(123)
    ladder.SelfAttention(3, 2)
    causal = ladder.CausalAttention(3, 2, context_length=6, dropout=0.0)
    torch.testing.assert_close(ladder_reports()[2].steps[0].out, causal(ladder.VECTORS[None]).detach())


def test_the_words_are_those_of_the_worked_example():
    assert {tuple(report.tokens.labels) for report in ladder_reports()} == {tuple(ladder.SENTENCE)}


def test_making_the_rungs_leaves_the_random_numbers_as_they_were():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    ladder_reports()
    torch.testing.assert_close(torch.rand(3), expected)

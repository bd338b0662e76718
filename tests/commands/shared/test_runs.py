"""Models that have read a text, for commands."""

import json

import pytest
import torch

import regard
from regard.commands.shared.runs import TitledRun, measure_effects, open_texts, watch_text


def test_each_model_reads_each_text():
    opened = open_texts(["tiny", "tiny"], ["The cat", "The cat sat"], None, "cpu")
    assert [one.tokens for one in opened] == [2, 3, 2, 3]
    assert opened[0].model is opened[1].model


def test_a_device_is_named_by_its_flag():
    with pytest.raises(ValueError, match=r"^--device abacus is none that torch knows; try cpu or cuda$"):
        open_texts(["tiny"], ["The cat"], None, "abacus")


def test_a_run_is_what_python_sees():
    (opened,) = open_texts(["tiny"], ["The cat sat on the mat"], 5, "cpu")
    run = TitledRun("title", "tiny", opened, watch_text(opened))
    with torch.no_grad(), regard.watch(opened.model) as seen:
        opened.model(**opened.inputs)
    torch.testing.assert_close(run.seen[4, 3].weights(), seen[4, 3].weights(), rtol=0, atol=0)
    plain = json.loads(json.dumps(run.as_json()))
    assert (plain["model"], len(plain["tokens"][0]), len(plain["layers"])) == ("tiny", 5, 6)


def test_effects_are_those_of_python():
    (opened,) = open_texts(["tiny"], ["The cat sat"], None, "cpu")
    expected = regard.effect(opened.model, "The cat sat", heads=[(0, 2)])
    assert measure_effects([opened], heads=[(0, 2)])[0, 2].loss == pytest.approx(expected[0, 2].loss)

from regard.school.check.behaviours.registry import NotChecked, NotOffered, Observed, behaviour
from regard.school.check.compare.experiment import Experiment
from regard.school.check.verdict import Finding
from school.check.learner import LESS, broken


@behaviour("found")
def found(result):
    yield Finding("a mistake", "It is there.")


@behaviour("half found")
def half_found(result):
    yield Finding("another", "It is there.")
    raise NotChecked("the rest is not known")


@behaviour("missing")
def missing(result):
    raise NotOffered
    yield


def test_what_is_tried_is_checked_and_what_is_not_offered_is_not_spoken_of():
    observed = Observed([], [], [])
    for one in (found, half_found, missing, found):
        observed.add(one, Experiment.__new__(Experiment))
    assert [finding.name for finding in observed.findings] == ["a mistake", "another", "a mistake"]
    assert observed.checked == ["found"]
    assert observed.not_checked == ["half found: the rest is not known"]


def test_a_layer_that_offers_much_is_tried_in_all_of_it(tmp_path):
    verdict = broken(tmp_path)
    assert verdict.findings == []
    assert verdict.not_checked == []
    for label in (
        *("values", "repeated calls", "batches", "lengths", "one head", "gradients", "returned weights"),
        *("cross-attention", "padding", "large scores", "float32", "dropout", "arguments"),
    ):
        assert label in verdict.checked


def test_a_layer_that_offers_little_promises_little(tmp_path):
    less = broken(tmp_path, *LESS)
    assert less.is_right
    assert not {"cross-attention", "padding", "returned weights", "cache", "rows without keys"} & {*less.checked}

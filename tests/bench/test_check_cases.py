import pytest

from regard.bench.check_cases import SourceEdit, are_compatible, pairs, read_edits, right_layers, wrong_layers
from regard.mistakes.search import MISTAKES


def test_every_edit_fits_its_layer_and_leaves_python():
    for file in ("mistakes.txt", "unknown.txt", "published.txt"):
        for case in wrong_layers(file):
            compile(case.source, case.layer, "exec")
            assert case.source != right_layers()[case.layer]
            assert case.lines


def test_every_mistake_is_in_at_least_five_layers():
    layers = {}
    for edit in read_edits():
        layers.setdefault(edit.name, set()).add(edit.layer)
    assert {name: found for name, found in layers.items() if len(found) < 5} == {}
    assert len(layers) > 50


def test_every_mistake_that_is_simulated_has_a_wrong_layer():
    edited = tuple({edit.name for edit in read_edits()})
    assert [one.name for one in MISTAKES if not one.name.startswith(edited)] == []


def test_pairs_are_of_one_layer_and_fit_in_any_order():
    cases = pairs()
    assert len(cases) > 1000
    assert all(len(case.names) == 2 for case in cases)


def test_two_mistakes_about_one_mask_are_no_pair():
    assert not are_compatible("no causal mask", "mask polarity inverted")
    assert are_compatible("no causal mask", "no scale")


def test_mistakes_that_are_one_function_together_are_no_pair():
    assert not are_compatible("wrong sign of infinity", "softmax over the heads")
    assert are_compatible("wrong sign of infinity", "softmax over the queries")


def test_an_edit_that_does_not_fit_gives_nothing():
    assert SourceEdit("x", "loop", (("not there", "y"),)).apply(right_layers()["loop"]) is None


@pytest.mark.parametrize("layer", right_layers())
def test_layers_are_python(layer):
    compile(right_layers()[layer], layer, "exec")

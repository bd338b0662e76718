import pytest

from regard.bench.check_cases import SourceEdit, are_compatible, pairs, read_edits, right_layers, wrong_layers


def test_every_edit_fits_its_layer_and_leaves_python():
    for file in ("mistakes.txt", "unknown.txt"):
        for case in wrong_layers(file):
            compile(case.source, case.layer, "exec")
            assert case.source != right_layers()[case.layer]
            assert case.lines


def test_the_issue_of_every_mistake_is_in_several_layers():
    names = [edit.name for edit in read_edits()]
    assert len(names) > 180
    assert len(set(names)) > 35
    assert len({name for name in names if names.count(name) >= 5}) > 28


def test_pairs_are_of_one_layer_and_fit_in_any_order():
    cases = pairs()
    assert len(cases) > 1000
    assert all(len(case.names) == 2 for case in cases)


def test_two_mistakes_about_one_mask_are_no_pair():
    assert not are_compatible("no causal mask", "mask polarity inverted")
    assert are_compatible("no causal mask", "no scale")


def test_an_edit_that_does_not_fit_gives_nothing():
    assert SourceEdit("x", "loop", (("not there", "y"),)).apply(right_layers()["loop"]) is None


@pytest.mark.parametrize("layer", right_layers())
def test_layers_are_python(layer):
    compile(right_layers()[layer], layer, "exec")

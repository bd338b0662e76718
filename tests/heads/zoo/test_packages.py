"""Models of other packages, watched: their own softmaxes, or a warning that names the module; nothing else."""

import re
import warnings

import pytest
import torch

import regard
from heads import dense
from heads.made_calls import made_call
from heads.zoo.measure import COMPARED, NEED_TOKENS, POSITIONAL
from heads.zoo.packages import PACKAGES, is_installed
from regard.heads.calls.basis import How

QUICK = ("vision_transformer", "cait", "xcit", "hiera", "plain", "signed weights")
CLOSE = {"atol": 2e-4, "rtol": 1e-3}
pytestmark = pytest.mark.filterwarnings("ignore")


def report(animal, fused):
    """The layers of a watch, and what it warns of; none where the model has only layers that are not reported."""
    model = animal.model(fused)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            with torch.no_grad(), regard.watch(model, keep=True, collect=("default", "received_mean")) as seen:
                model(animal.x(), **animal.options)
            layers = list(seen)
        except ValueError as error:
            assert "is not reported" in str(error)  # noqa: PT017 (it is one of two right answers)
            layers = []
    return layers, [str(one.message) for one in said if "is not reported" in str(one.message)]


@pytest.mark.parametrize(
    ("animal", "fused"),
    [
        pytest.param(
            animal,
            fused,
            id=f"{animal.package} {animal.name}{' fused' * fused}",
            marks=() if quick else pytest.mark.zoo,
        )
        for animal in PACKAGES
        for fused in ((False, True) if animal.package == "timm" else (False,))
        for quick in (animal.name in QUICK,)
    ],
)
def test_a_model_of_another_package(animal, fused):
    if not is_installed(animal.package):
        pytest.skip(f"{animal.package} is not installed")
    if fused and not animal.can_fuse:
        pytest.skip(f"{animal.name} has no fused attention")
    truth, (layers, said) = animal.truth(), report(animal, fused)
    assert len(layers) == len(truth) - animal.lost
    assert bool(said) is bool(animal.lost)
    for layer in layers:
        sizes, weights = tuple(layer.record.sizes), layer.weights().double()
        fitting = [one for one in truth if one.shape == sizes and torch.allclose(one, weights, **CLOSE)]
        assert fitting, f"{layer.name} {sizes} is no softmax of the model"
        truth = [one for one in truth if one is not fitting[0]]
        compare(layer, fitting[0])


def compare(layer, weights):
    """Every statistic, by its definition in float64; those that need positions only where they are known."""
    ids = layer.record.steps[0].call.origin.tokens
    call = made_call("", weights=weights, tokens=ids, across=layer.record.across)
    known = layer.record.has_positions
    for name, right in dense.measure(call, frozenset(COMPARED)).items():
        if (name in NEED_TOKENS and ids is None) or not layer.record.has(name):
            continue
        mine = layer.record.read(name).double()
        if not known and name in (*POSITIONAL, "sink"):
            assert layer.record.across or mine.isnan().all(), name
        else:
            assert torch.allclose(mine, right.double(), equal_nan=True, **CLOSE), f"{layer.name}: {name}"
    if not known and not layer.record.across:
        assert layer.basis.positions.how is How.UNKNOWN
        assert re.match("positions unknown: ", layer.marks[0])

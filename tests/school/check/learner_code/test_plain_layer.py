import unittest

import numpy as np
import pytest
import torch
from torch import nn

from regard.school.check.learner_code.plain_layer import PlainLayer, as_layer, call_method


class Head:
    def __init__(self, width):
        self.w = np.ones((width, width), dtype=np.float32)


class Numpy:
    def __init__(self):
        self.heads = [Head(2), Head(2)]
        self.params = {"a.b": np.zeros((3, 2)), "tied": None}
        self.params["tied"] = self.table = np.ones(3)
        self.mask, self.count, self.training = np.tri(3, dtype=bool), 7, True

    def forward(self, x):
        assert isinstance(x, np.ndarray)
        return x @ self.heads[1].w + self.params["tied"].sum() + self.table.sum()


class Tensors:
    def __init__(self):
        self.w, self.linear = torch.ones(2, 2), nn.Linear(2, 2)

    def attend(self, x, mask=None):
        return self.linear(x) @ self.w


def test_arrays_are_parameters_by_their_place():
    layer = PlainLayer(Numpy())
    shapes = {name: tuple(one.shape) for name, one in layer.named_parameters()}
    assert shapes == {"heads.0.w": (2, 2), "heads.1.w": (2, 2), "params.a_b": (3, 2), "params.tied": (3,)}
    assert [name for name, _ in layer.named_buffers()] == ["mask"]


def test_it_computes_with_the_parameters_as_they_are():
    layer = PlainLayer(Numpy()).to(torch.float64)
    with torch.no_grad():
        layer.get_parameter("heads.1.w").copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        layer.get_parameter("params.tied").fill_(5.0)
    out = layer(torch.tensor([[1.0, 1.0]], dtype=torch.float64))
    assert (out.tolist(), out.dtype) == ([[34.0, 36.0]], np.float64)  # the table, which is the same array, too


def test_tensors_and_modules_stay_what_they_are():
    layer = PlainLayer(Tensors()).to(torch.float64)
    assert [name for name, _ in layer.named_parameters()] == ["w", "linear.weight", "linear.bias"]
    x = torch.ones(3, 2, dtype=torch.float64)
    torch.testing.assert_close(layer(x), (x @ layer.linear.weight.T + layer.linear.bias) @ layer.w)


def test_eval_switches_the_instance():
    plain = Numpy()
    PlainLayer(plain).eval()
    assert plain.training is False


def test_a_class_is_called_by_its_method_for_that():
    class Called:
        def __call__(self, x): ...
        def helper(self, x): ...

    class Only:
        def berechne(self, x): ...

    class Several:
        def one(self): ...
        def two(self): ...

    class Case(unittest.TestCase):
        def test_it(self): ...

    assert list(map(call_method, (Numpy, Tensors, nn.Linear, Called, Only, Several, Case))) == [
        "forward", "attend", "forward", "__call__", "berechne", "", ""
    ]  # fmt: skip
    with pytest.raises(AttributeError, match="Several has no method forward or __call__"):
        PlainLayer(Several())


def test_modules_and_functions_are_layers_already():
    linear = nn.Linear(2, 3)
    assert as_layer(linear) is linear
    assert as_layer(len) is len
    assert isinstance(as_layer(Tensors()), PlainLayer)

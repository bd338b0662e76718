"""What a type checker knows of results; `make types` checks this file, nothing runs it."""

from typing import Any

import torch
from torch import Tensor
from typing_extensions import assert_type

from regard import GPT, MultiHeadAttention
from regard.gpt.generate.text import Continuation


def layers(layer: MultiHeadAttention, model: GPT, x: Tensor) -> None:
    assert_type(layer(x), Tensor)
    assert_type(layer(x, return_weights=True), tuple[Tensor, Tensor])
    assert_type(model(x), Tensor)


def generated(model: GPT) -> None:
    assert_type(model.generate("a", 5, temperature=0.5, stop="."), str)
    assert_type(model.generate("a", samples=2), list[str])
    assert_type(model.generate("a", logprobs=True), Continuation)
    assert_type(model.generate(["a", "b"], seed=3), list[str])
    assert_type(model.generate([5, 6]), list[int])
    assert_type(model.generate([[5, 6], [7]]), list[list[int]])
    assert_type(model.generate(["a"], samples=2, logprobs=True), Any)
    assert_type(model.generate(torch.tensor([5]), mask=torch.tensor([True])), Any)
    model.generate("a", temprature=0.5)  # type: ignore[call-overload]

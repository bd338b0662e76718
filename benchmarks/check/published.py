"""What the checks of other people let through: their inputs and their conditions, in our own words.

Read from the files that they publish: TorchCode's tasks gqa, mha and causal_attention, and problems 94 and 107 of
Deep-ML. Each function here takes a layer or a function as its task asks for, and returns why it is refused; "" if it is
accepted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

Array = NDArray[Any]


def torchcode_gqa(layer: Any) -> str:
    """Shapes of weights and output, and that gradients exist: no number of the output is looked at."""
    torch.manual_seed(0)
    if layer(d_model=32, num_heads=8, num_kv_heads=2)(torch.randn(2, 6, 32)).shape != (2, 6, 32):
        return "Shape mismatch"
    module = layer(d_model=32, num_heads=8, num_kv_heads=2)
    shapes = {"W_q": (32, 32), "W_k": (8, 32), "W_v": (8, 32), "W_o": (32, 32)}
    if any(tuple(getattr(module, name).weight.shape) != shape for name, shape in shapes.items()):
        return "wrong shape of a weight"
    same = layer(d_model=16, num_heads=4, num_kv_heads=4)
    if same(torch.randn(1, 4, 16)).shape != (1, 4, 16) or same.W_k.weight.shape != (16, 16):
        return "Full KV when kv_heads == heads"
    # Its test of the sharing repeats the keys itself, so it cannot fail.
    module, x = layer(d_model=16, num_heads=4, num_kv_heads=2), torch.randn(1, 4, 16, requires_grad=True)
    module(x).sum().backward()
    return _gradients(x, module.W_q.weight, module.W_k.weight)


def torchcode_mha(layer: Any) -> str:
    """The same, and the numbers of one output."""
    module = layer(d_model=32, num_heads=4)
    if module(*[torch.randn(2, 6, 32)] * 3).shape != (2, 6, 32):
        return "Shape mismatch"
    torch.manual_seed(0)
    module = layer(d_model=16, num_heads=2)
    q, k, v = (torch.randn(1, 4, 16) for _ in range(3))
    heads = [W(t).view(1, 4, 2, 8).transpose(1, 2) for W, t in ((module.W_q, q), (module.W_k, k), (module.W_v, v))]
    right = module.W_o(scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2))
    if not torch.allclose(module(q, k, v), right, atol=1e-5):
        return "Output does not match reference"
    x = torch.randn(1, 4, 16, requires_grad=True)
    module(x, x, x).sum().backward()
    return _gradients(x, module.W_q.weight, module.W_o.weight)


def torchcode_causal(function: Callable[..., Tensor]) -> str:
    """Its shape, that later tokens change nothing, that token 0 gives its own value, and that gradients exist."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 8, 16) for _ in range(3))
    before = function(q, k, v)
    if before.shape != (2, 8, 16):
        return "Shape mismatch"
    k[:, 4:], v[:, 4:] = torch.randn(2, 4, 16), torch.randn(2, 4, 16)
    if not torch.allclose(before[:, :4], function(q, k, v)[:, :4], atol=1e-5):
        return "Changing future K/V affected past outputs"
    if not torch.allclose(before[:, 0], v[:, 0], atol=1e-5):
        return "Position 0 should output V[0]"
    inputs = [torch.randn(2, 4, 8, requires_grad=True) for _ in range(3)]
    function(*inputs).sum().backward()
    return _gradients(*inputs)


def _gradients(*tensors: Tensor) -> str:
    return "Missing gradients" if any(t.grad is None for t in tensors) else ""


def deepml_94(function: Callable[..., Array]) -> str:
    """Three inputs of whole numbers, whose products are in the thousands: the softmax is 0 or 1, whatever the scale."""
    for tokens, width, heads in ((4, 4, 2), (6, 8, 4), (6, 8, 2)):
        q, k, v = _whole_numbers(tokens, width)
        split = [torch.from_numpy(t).double().unflatten(1, (heads, -1)).transpose(0, 1)[None] for t in (q, k, v)]
        right = scaled_dot_product_attention(split[0], split[1], split[2])[0].transpose(0, 1).flatten(1)
        if not numpy.allclose(function(q, k, v, heads), right.numpy()):
            return "another output"
    return ""


def deepml_107(function: Callable[..., Array]) -> str:
    """The same inputs, with a mask of −∞ over later tokens."""
    for tokens, width in ((6, 8), (4, 4)):
        q, k, v = _whole_numbers(tokens, width)
        hidden = numpy.triu(numpy.full((tokens, tokens), -numpy.inf), 1)
        double = [torch.from_numpy(t).double()[None, None] for t in (q, k, v)]
        right = scaled_dot_product_attention(double[0], double[1], double[2], is_causal=True)[0, 0]
        if not numpy.allclose(function(q, k, v, hidden), right.numpy()):
            return "another output"
    return ""


def _whole_numbers(tokens: int, width: int) -> list[Array]:
    """X is 0, 1, 2 … in a random order, and weights are random numbers below 4, 5 and 6."""
    random = numpy.random.RandomState(42)
    x = random.permutation(tokens * width).reshape(tokens, width)
    return [x @ random.randint(0, below, size=(width, width)) for below in (4, 5, 6)]


PUBLISHED: dict[str, Callable[[Any], str]] = {
    "torchcode_gqa": torchcode_gqa,
    "torchcode_mha": torchcode_mha,
    "torchcode_causal": torchcode_causal,
    "deepml_94": deepml_94,
    "deepml_107": deepml_107,
}

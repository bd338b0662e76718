"""Trial: an attention module beside the layer that was planned for it, both run on the same random input."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.adoption.layouts import Plan, build_layer, is_gpt2, sizes_of, state_of
from regard.attention.layer import MultiHeadAttention
from regard.support.super_init import explain_missing_init
from regard.support.vocabulary import MASK
from regard.traces.torch_calls import TorchCalls


class Answer(NamedTuple):
    """An output of the module, (B, T, d_out), and the relative tolerance that its arithmetic allows."""

    out: Tensor
    tolerance: float

    def is_close_to(self, other: Tensor) -> bool:
        """Is the largest difference within the tolerance?"""
        if other.shape != self.out.shape or not other.numel():
            return other.shape == self.out.shape
        return bool((other - self.out).abs().max() <= self.tolerance * self.out.abs().max())


@dataclass(frozen=True)
class Trial:
    """A plan, a copy of the module from copy_for_trial(), and the input (B, T, d_in) to run both on."""

    plan: Plan
    module: nn.Module
    x: Tensor

    def layer(self, **changes: Any) -> MultiHeadAttention:
        """The planned layer, or one whose plan differs by these changes."""
        return build_layer(replace(self.plan, **changes), state_of(self.module)).eval()

    def agrees(self, **changes: Any) -> bool:
        """Does the layer, built with these changes to its plan, compute what the module computes?"""
        ours: Tensor = self.layer(**changes)(self.x)
        masked = self.plan.causal is True and changes.get("causal", True) is True
        return any(answer.is_close_to(ours) for answer in self.answers(masked))

    def answers(self, masked: bool) -> Iterator[Answer]:
        """The module's output without a mask and, where it takes one, with each usual form of a causal mask."""
        yield run_module(self.module, self.x)
        if not masked or not any(name in MASK for name in inspect.signature(self.module.forward).parameters):
            return
        T = self.x.shape[1]
        seen = torch.ones(T, T, dtype=torch.bool, device="cpu").tril()
        for mask in (seen, ~seen, torch.zeros_like(seen, dtype=self.x.dtype).masked_fill(~seen, -torch.inf)):
            for form in (mask, mask.expand(len(self.x), -1, -1)):
                try:
                    yield run_module(self.module, self.x, form)
                except ValueError:  # this module takes another form of mask
                    continue

    def hides_the_future(self) -> bool:
        """Change the last token: are all earlier outputs of the module as before?"""
        changed = torch.cat([self.x[:, :-1], -self.x[:, -1:]], dim=1)
        before, after = run_module(self.module, self.x).out, run_module(self.module, changed).out
        return Answer(before[:, :-1], 1e-12).is_close_to(after[:, :-1])


def copy_for_trial(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    """A copy of the module in eval(), on the CPU, without hooks."""
    replaced: dict[int, Any] = {}
    for part in module.modules():
        # Tensors kept from the last run have a history, which deepcopy refuses; hooks may lead anywhere.
        replaced |= {id(t): t.detach().clone() for t in vars(part).values() if isinstance(t, Tensor) and not t.is_leaf}
        replaced |= {id(hooks): type(hooks)() for hooks in (part._forward_hooks, part._forward_pre_hooks)}
    result = copy.deepcopy(module, replaced).to("cpu", dtype).eval()
    if is_gpt2(result):  # the same mathematics, in a form that runs here and keeps float64
        gpt2: Any = result
        gpt2.reorder_and_upcast_attn = False
        if gpt2.config._attn_implementation not in ("eager", "sdpa"):
            gpt2.config._attn_implementation = "eager"
    return result


def run_module(module: nn.Module, x: Tensor, mask: Tensor | None = None) -> Answer:
    """Run a module on x, (B, T, d_in), for every argument that it requires, and on the mask where one is given."""
    transposed = getattr(module, "batch_first", True) is False
    args, kwargs = _arguments(module, x.transpose(0, 1) if transposed else x, mask, T=x.shape[1])
    try:
        with TorchCalls(module) as recorded:
            result = module(*args, **kwargs)
    except Exception as error:
        raise explain_missing_init(error) or _failed(module, x, error) from error
    out = next((t for t in result if isinstance(t, Tensor)), None) if isinstance(result, (tuple, list)) else result
    if not isinstance(out, Tensor):
        remedy = "return a tensor, or a tuple that starts with it"
        raise ValueError(f"{type(module).__name__} returns {type(result).__name__}; {remedy}")
    # A module may compute something in float32 whatever its input, such as torch.sqrt(torch.tensor(8.0)).
    floats = (call.value for call in recorded.calls if call.dtype.is_floating_point)
    is_exact = not any(bool(t[t.isfinite()].frac().any()) for t in floats if t.dtype is not torch.float64)
    return Answer(out.transpose(0, 1) if transposed else out, 1e-9 if is_exact else 1e-5)


def _arguments(module: nn.Module, x: Tensor, mask: Tensor | None, T: int) -> tuple[list[Tensor], dict[str, Tensor]]:
    parameters = inspect.signature(module.forward).parameters.values()
    required = [p.name for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    optional = next((p.name for p in parameters if p.name in MASK), None)
    everything = torch.ones(T, T, dtype=torch.bool, device="cpu")
    args = [(everything if mask is None else mask) if name in MASK else x for name in required or ["x"]]
    return args, {} if mask is None or optional is None or optional in required else {optional: mask}


def _failed(module: nn.Module, x: Tensor, error: Exception) -> ValueError:
    remedy = f"make it run on torch.randn{sizes_of(x)} first"
    if isinstance(error, NameError):
        remedy = f"define {error.name} in forward, for example by batch_size, num_tokens, d_in = x.shape"
        remedy = "write import torch.nn.functional as F at the top of its file" if error.name == "F" else remedy
    message = type(error).__name__ + ": " + str(error).strip().partition("\n")[0]
    return ValueError(f"{type(module).__name__} itself failed on x of shape {sizes_of(x)}: {message}; {remedy}")

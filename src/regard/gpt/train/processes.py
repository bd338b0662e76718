"""The processes of a training run: everything that differs between one process and many, behind one interface.

The training loop calls `Processes` and never torch.distributed. `Processes` itself is one process on one device;
regard.gpt.train.parallel has `ParallelProcesses`, for torchrun. A full state has the same names in both, so that a
checkpoint of one can be loaded by the other:

    model.<parameter name>             the full weights
    optimizer.<kind>.<parameter name>  the state of AdamW: kind is exp_avg, exp_avg_sq or step
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import Optimizer

from regard.gpt.config import GPTConfig
from regard.support.argument_names import assigned, named
from regard.support.arguments import name_of
from regard.support.printable import readable

KINDS = ("step", "exp_avg", "exp_avg_sq")


class Processes:
    """What the training loop needs of the processes it runs in; here one process on one device.

    is_main: does this process, rank 0, write files and messages?
    data_rank, data_ranks: which rows of a batch this process reads, and how many data-parallel ranks there are.
    """

    is_single = is_main = True
    data_rank, data_ranks = 0, 1

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)

    def check(self, config: GPTConfig, batch: int) -> None:
        """Raise a ValueError if a model of these sizes, or a batch of this size, cannot be split across processes."""

    def prepare(self, model: nn.Module) -> None:
        """Move the model to the device and shard it, in place. `model.loss` is what will be called."""
        model.to(self.device)

    def mean(self, value: Float[Tensor, ""]) -> Float[Tensor, ""]:
        """The mean of a number over the data-parallel ranks."""
        return value

    def clip_gradients(self, parameters: Iterable[Tensor], max_norm: float) -> Float[Tensor, ""]:
        """Clip the gradient norm, over all ranks; returns it before clipping. It does not synchronize with the GPU."""
        return nn.utils.clip_grad_norm_(parameters, max_norm)

    def full_state(self, model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
        """A copy of the unsharded state on the CPU of the main process, by the names above; may be empty elsewhere."""
        tensors = {}
        for name, parameter in model.named_parameters():
            tensors[f"model.{name}"] = parameter.detach().cpu().clone()
            for kind, value in optimizer.state.get(parameter, {}).items():
                tensors[f"optimizer.{kind}.{name}"] = value.detach().cpu().clone()
        return tensors

    def load_full_state(self, model: nn.Module, optimizer: Optimizer, tensors: dict[str, Tensor]) -> None:
        """Load in place what full_state() returned; only the main process needs `tensors`."""
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(tensors[f"model.{name}"])
                if kinds := optimizer_state(tensors, name):
                    state = {kind: value.to(parameter.device, copy=True) for kind, value in kinds.items()}
                    is_fused = any(group.get("fused") or group.get("capturable") for group in optimizer.param_groups)
                    if not is_fused:  # then AdamW counts its steps on the CPU
                        state["step"] = kinds["step"].to("cpu", copy=True)
                    optimizer.state[parameter] = state

    def broadcast(self, value: Any) -> Any:
        """The main process's value, on every process."""
        return value

    def any(self, flag: bool) -> bool:
        """Is the flag set on any process?"""
        return flag

    def barrier(self) -> None:
        """Wait for all processes."""
        self.any(False)


def optimizer_state(tensors: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    """The state of AdamW for a parameter, by kind; {} for one that is frozen, and before the first step."""
    keys = {kind: f"optimizer.{kind}.{name}" for kind in KINDS}
    return {kind: tensors[key] for kind, key in keys.items() if key in tensors}


def check_full_state(model: nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    """A full state must have exactly the names, shapes and dtypes of this model: nothing is broadcast or converted."""
    expected: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {}
    for name, parameter in model.named_parameters():
        expected[f"model.{name}"] = parameter.dtype, tuple(parameter.shape)
        if optimizer_state(tensors, name):
            expected[f"optimizer.step.{name}"] = torch.float32, ()
            expected[f"optimizer.exp_avg.{name}"] = expected[f"model.{name}"]
            expected[f"optimizer.exp_avg_sq.{name}"] = expected[f"model.{name}"]
    stored = {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()}
    for name in dict.fromkeys([*expected, *stored]):
        if stored.get(name) != expected.get(name):
            is_now, needed = (
                "nothing" if kind is None else f"{kind[1]} of {name_of(kind[0])}"
                for kind in (stored.get(name), expected.get(name))
            )
            raise ValueError(
                f"{path}: {readable(name)} is {is_now}; this model needs {needed}. Nothing was loaded; resume with the "
                f"model that the run began with, or start over ({assigned('resume', False)})"
            )


def find_device(name: torch.device | str | None = None) -> torch.device:
    """The device of that name; without one, a GPU if there is one. A device that cannot compute is a ValueError."""
    try:
        device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
    except RuntimeError:
        raise ValueError(f"{named('device', name)} is none that torch knows; try cpu or cuda") from None
    if device.type == "cuda":  # do not allocate on it: every process would take memory of the first GPU
        available = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if not available:
            raise ValueError("there is no CUDA device here; try --device cpu")
        if (device.index or 0) >= available:
            there = f"there are {available} GPUs, from cuda:0 to cuda:{available - 1}"
            raise ValueError(f"{named('device', device)} is not here: {there}")
        return device
    try:
        torch.ones(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError):
        raise ValueError(f"nothing can be computed on {named('device', device)} here; try cpu") from None
    return device

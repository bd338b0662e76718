"""The world a run lives in: everything that differs between one process and many, behind one small door.

The trainer asks its world and never torch.distributed. `Alone` is the world of a single process; regard.gpt.train.parallel
has the one of torchrun. Names in a full state are the same in both, so that what one has saved the other can load:

    model.<parameter name>            the weights, whole
    optimizer.<kind>.<parameter name> what AdamW remembers: kind is exp_avg, exp_avg_sq or step
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import Optimizer

from regard.gpt.config import GPTConfig


@runtime_checkable
class World(Protocol):
    """What a trainer needs to know of the processes around it."""

    device: torch.device  # where this process computes
    main: bool  # does this process write files and speak?
    data_rank: int  # which rows of a batch are this process's
    data_ranks: int  # among how many the rows are shared out

    def check(self, config: GPTConfig, batch: int) -> None:
        """Can such a model, and so many rows, be shared out here? If not, a ValueError, before anything is done."""

    def prepare(self, model: nn.Module) -> None:
        """Move the model to the device and share it out, in place. `model.loss` is what will be called."""

    def mean(self, value: Float[Tensor, ""]) -> Float[Tensor, ""]:
        """The mean of a number over the data ranks."""

    def clip(self, parameters: Iterable[Tensor], max_norm: float) -> Float[Tensor, ""]:
        """Scale gradients down to `max_norm` where they are longer; their length before, over all ranks."""

    def full_state(self, model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
        """Everything whole and on the CPU, by the names above, at the main process; may be empty elsewhere."""

    def load_full_state(self, model: nn.Module, optimizer: Optimizer, tensors: dict[str, Tensor]) -> None:
        """Take back what full_state() gave; `tensors` need only be there at the main process."""

    def share(self, value: Any) -> Any:
        """The main process's value, everywhere."""

    def any(self, flag: bool) -> bool:
        """Is it true for any process?"""

    def barrier(self) -> None:
        """Wait until all are here."""


class Alone:
    """One process, one device."""

    main = True
    data_rank = 0
    data_ranks = 1

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)

    def check(self, config: GPTConfig, batch: int) -> None:
        """Nothing need be shared out."""

    def prepare(self, model: nn.Module) -> None:
        """Move the model to the device."""
        model.to(self.device)

    def mean(self, value: Float[Tensor, ""]) -> Float[Tensor, ""]:
        """There is only one."""
        return value

    def clip(self, parameters: Iterable[Tensor], max_norm: float) -> Float[Tensor, ""]:
        """torch's own clipping; on a GPU it waits for nothing."""
        return nn.utils.clip_grad_norm_(parameters, max_norm)

    def full_state(self, model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
        """Weights and what the optimizer remembers, copied to the CPU."""
        found = {}
        for name, parameter in model.named_parameters():
            found[f"model.{name}"] = parameter.detach().cpu().clone()
            for kind, value in optimizer.state.get(parameter, {}).items():
                found[f"optimizer.{kind}.{name}"] = value.detach().cpu().clone()
        return found

    def load_full_state(self, model: nn.Module, optimizer: Optimizer, tensors: dict[str, Tensor]) -> None:
        """Copy the weights in place, and give the optimizer its memory back."""
        kinds = dict.fromkeys(name.split(".")[1] for name in tensors if name.startswith("optimizer."))
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(tensors[f"model.{name}"])
                state = {kind: tensors[f"optimizer.{kind}.{name}"] for kind in kinds}
                if state:
                    # AdamW counts its steps where it can read them without waiting: on the device only when fused.
                    optimizer.state[parameter] = {
                        kind: _placed(kind, t, parameter, optimizer) for kind, t in state.items()
                    }

    def share(self, value: Any) -> Any:
        """Nobody to share with."""
        return value

    def any(self, flag: bool) -> bool:
        """Nobody else."""
        return flag

    def barrier(self) -> None:
        """Nobody to wait for."""


def find_device(name: torch.device | str | None = None) -> torch.device:
    """The device of that name; without one, a GPU if there is one. Where nothing can be computed, a ValueError says so.

    >>> find_device("cpu")
    device(type='cpu')
    """
    try:
        device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
    except RuntimeError:
        raise ValueError(f"device ({name}) is none that torch knows; try cpu or cuda") from None
    if device.type == "cuda":  # without touching one: that would take memory of the first for each process
        there = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if not there:
            raise ValueError("there is no CUDA device here; try --device cpu")
        if (device.index or 0) >= there:
            raise ValueError(f"device ({device}) is not here: there are {there} GPUs, from cuda:0 to cuda:{there - 1}")
        return device
    try:
        torch.ones(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError):
        raise ValueError(f"nothing can be computed on device ({device}) here; try cpu") from None
    return device


def _placed(kind: str, value: Tensor, parameter: Tensor, optimizer: Optimizer) -> Tensor:
    if kind == "step":
        fused = any(group.get("fused") or group.get("capturable") for group in optimizer.param_groups)
        return value.to(parameter.device if fused else "cpu", copy=True)
    return value.to(parameter.device, parameter.dtype, copy=True)

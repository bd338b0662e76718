"""Many processes as one: the world of a run that torchrun has started.

Adds to world.py's Alone: FSDP2 shares every weight, gradient and optimizer state out among processes that read
different rows (memory), and tensor parallel splits heads and feed-forward among processes that read the same rows
(width). Both are torch.distributed's own; here is only what goes where.

    fsdp=2,tp=2        tp 0                        tp 1
    fsdp 0, rows 0     process 0, half the heads   process 1, the other half
    fsdp 1, rows 1     process 2, half the heads   process 3, the other half
"""

from __future__ import annotations

import logging
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.optim import Optimizer

from regard.gpt.block import Block
from regard.gpt.config import GPTConfig
from regard.gpt.model import GPT
from regard.gpt.train.data import shared_rows
from regard.gpt.train.processes import find_device

COMMAND = "torchrun --standalone --nproc-per-node {} --no-python regard train …"


@dataclass(frozen=True)
class Parallel:
    """How many processes share the memory (fsdp), and how many split the width (tp).

    >>> Parallel.parse("fsdp=2,tp=4", world_size=8)
    Parallel(fsdp=2, tp=4)
    """

    fsdp: int = 1
    tp: int = 1

    @staticmethod
    def parse(text: str | None, world_size: int | None) -> Parallel:
        """Read `fsdp=2,tp=2`; all processes to fsdp where nothing is said.

        >>> Parallel.parse(None, world_size=4)
        Parallel(fsdp=4, tp=1)

        world_size: how many processes torchrun has started; None without it.
        """
        if text is None and world_size is not None:
            return Parallel(fsdp=world_size)
        found = Parallel() if text is None else Parallel(**_numbers(text))
        if world_size is None:
            raise ValueError(
                f"parallel ({found}) is for {_processes(found)}, but this one was started alone; "
                f"run {COMMAND.format(found.processes)}"
            )
        if found.processes != world_size:
            product = f"fsdp={found.fsdp} × tp={found.tp}" if min(found.fsdp, found.tp) > 1 else str(found)
            raise ValueError(
                f"{product} is {_processes(found)} but torchrun started {world_size}; "
                f"use --nproc-per-node {found.processes}, or {_other(found, world_size)}"
            )
        return found

    @property
    def processes(self) -> int:
        """How many that is."""
        return self.fsdp * self.tp

    def check(self, config: GPTConfig) -> None:
        """Can this model be split so? Every tp process gets the same number of heads, and of feed-forward channels."""
        sizes = {"num_heads": config.num_heads, "num_kv_heads": config.kv_heads, "d_ff": config.inner}
        wrong = [f"{name} ({size})" for name, size in sizes.items() if size % self.tp]
        if wrong:
            fits = [str(n) for n in range(1, config.kv_heads + 1) if not any(size % n for size in sizes.values())]
            raise ValueError(f"tp ({self.tp}) must divide {' and '.join(wrong)}; try tp={_or(fits)}")

    def __str__(self) -> str:
        return ",".join(f"{name}={n}" for name, n in (("fsdp", self.fsdp), ("tp", self.tp)) if n > 1) or "fsdp=1"


def world_size() -> int | None:
    """How many processes torchrun has started; None where this one was started without it."""
    return int(os.environ["WORLD_SIZE"]) if {"RANK", "WORLD_SIZE"} <= os.environ.keys() else None


@contextmanager
def together(
    parallel: str | Parallel | None = None, device: torch.device | str | None = None, dtype: torch.dtype = torch.float32
) -> Iterator[Together]:
    """Join the processes that torchrun has started, and leave them at the end.

        with together("fsdp=2,tp=2", dtype=torch.bfloat16) as world:
            world.prepare(model)

    device: "cpu" or "cuda" (this process's own GPU); cuda unless there is none.
    dtype: what the forward and backward passes compute in; weights stay in their own dtype.
    """
    plan = parallel if isinstance(parallel, Parallel) else Parallel.parse(parallel, world_size())
    place = _own(find_device(device))
    # Beside NCCL gloo stays at hand, for the words between processes that no GPU need wait for.
    dist.init_process_group("cpu:gloo,cuda:nccl" if place.type == "cuda" else "gloo")
    try:
        with _quiet("torch.distributed.tensor._redistribute"):
            yield Together(plan, place, dtype)
    except BaseException:
        # Those that still wait for us are ended by torchrun; to take leave of them properly would be to wait for them.
        if place.type == "cpu":
            dist.destroy_process_group()
        raise
    dist.destroy_process_group()


class Together:
    """The World of many processes; regard.gpt.train.processes says what each of its functions is for."""

    def __init__(self, plan: Parallel, device: torch.device, dtype: torch.dtype) -> None:
        self.plan, self.device, self.dtype = plan, device, dtype
        self.mesh = init_device_mesh(device.type, (plan.fsdp, plan.tp), mesh_dim_names=("fsdp", "tp"))
        self.main = dist.get_rank() == 0
        self.data_rank = self.mesh.get_local_rank("fsdp")
        self.data_ranks = plan.fsdp

    def check(self, config: GPTConfig, batch: int) -> None:
        """Heads and feed-forward must be divisible by tp, rows by fsdp."""
        self.plan.check(config)
        shared_rows(batch, self.data_rank, self.data_ranks)

    def prepare(self, model: nn.Module) -> None:
        """Share the model out, in place: the main process's weights, heads and feed-forward by tp, all of it by fsdp.

        The model may still lie on the CPU: it is moved block by block, and never lies whole on a GPU.
        """
        assert isinstance(model, GPT)
        self.plan.check(model.config)
        with torch.no_grad():
            for parameter in model.parameters():
                whole = parameter.detach().to(self.device)
                dist.broadcast(whole, 0)
                parameter.copy_(whole)
        narrow = self.dtype if self.dtype is not torch.float32 else None
        policy = MixedPrecisionPolicy(param_dtype=narrow, reduce_dtype=torch.float32 if narrow else None)
        for block in model.blocks:
            assert isinstance(block, Block)
            block.attention.move_out()  # FSDP has memory of its own for the weights
            if self.plan.tp > 1:
                split(block, self.mesh["tp"])
            fully_shard(block, mesh=self.mesh["fsdp"], mp_policy=policy)
        # What is not in a block: embeddings, last norm and head. A tied head is the embedding, so they are one group.
        fully_shard(model, mesh=self.mesh["fsdp"], mp_policy=policy)
        register_fsdp_forward_method(model, "loss")

    def mean(self, value: Float[Tensor, ""]) -> Float[Tensor, ""]:
        """The mean over all processes; those of one data rank have the same value."""
        total = value.detach().clone()
        dist.all_reduce(total)
        return total / self.plan.processes

    def clip(self, parameters: Iterable[Tensor], max_norm: float) -> Float[Tensor, ""]:
        """Clip by the length over all shards. What tp splits lies on another mesh than the rest: one length for each."""
        meshes: dict[DeviceMesh, list[Tensor]] = defaultdict(list)
        for parameter in parameters:
            assert isinstance(parameter, DTensor)
            if parameter.grad is not None:
                meshes[parameter.device_mesh].append(parameter)
        lengths = [_whole(nn.utils.get_total_norm([p.grad for p in some])) for some in meshes.values()]  # type: ignore[misc]
        length: Tensor = torch.linalg.vector_norm(torch.stack(lengths))
        for some in meshes.values():
            nn.utils.clip_grads_with_norm_(some, max_norm, length)
        return length

    def full_state(self, model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
        """Gathered tensor by tensor, kept on the main process's CPU."""
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        weights: dict[str, Any] = get_model_state_dict(model, options=options)
        found = {f"model.{name}": weight for name, weight in weights.items()}
        if optimizer.state:  # before its first step an optimizer remembers nothing, and asking would make it take one
            memory: dict[str, Any] = get_optimizer_state_dict(model, optimizer, options=options)
            known = memory.get("state", {})
            found |= {f"optimizer.{kind}.{name}": t for name, kinds in known.items() for kind, t in kinds.items()}
        return found

    def load_full_state(self, model: nn.Module, optimizer: Optimizer, tensors: dict[str, Tensor]) -> None:
        """Sent out tensor by tensor from the main process."""
        options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
        weights, memory = _sorted_out(tensors) if self.main else ({}, {})
        set_model_state_dict(model, weights, options=options)
        if self.any(bool(memory)):
            groups = _named_groups(model, optimizer)
            state: dict[str, Any] = {"state": memory, "param_groups": groups} if self.main else {}
            set_optimizer_state_dict(model, optimizer, state, options=options)

    def share(self, value: Any) -> Any:
        """The main process's value, everywhere."""
        box = [value]
        dist.broadcast_object_list(box, 0, device=torch.device("cpu"))
        return box[0]

    def any(self, flag: bool) -> bool:
        """Is it true for any process?"""
        votes = torch.tensor(int(flag))
        dist.all_reduce(votes)
        return bool(votes)

    def barrier(self) -> None:
        """Wait until all are here."""
        self.any(False)


def split(block: Block, mesh: DeviceMesh) -> None:
    """Split a block's heads and feed-forward channels among the processes of a mesh.

    Each process projects to its own heads, attends with them, and projects back to a part of every channel; the parts
    are added up across processes, once for attention and once for the feed-forward. The rest every process does alike.
    """
    plan: dict[str, ParallelStyle] = {
        "attention.W_query": ColwiseParallel(),
        "attention.W_key": ColwiseParallel(),
        "attention.W_value": ColwiseParallel(),
        "attention.out_proj": RowwiseParallel(),
        "feed_forward.up": ColwiseParallel(),
        "feed_forward.gate": ColwiseParallel(),
        "feed_forward.down": RowwiseParallel(),
        # One weight for all heads, which each process sees only some of: the axis that torch calls a sequence is heads.
        "attention.q_norm": SequenceParallel(sequence_dim=1, use_local_output=True),
        "attention.k_norm": SequenceParallel(sequence_dim=1, use_local_output=True),
    }
    there = {name for name, _ in block.named_modules()}
    parallelize_module(block, mesh, {name: style for name, style in plan.items() if name in there})
    block.attention.num_heads //= mesh.size()
    block.attention.num_kv_heads //= mesh.size()


def _numbers(text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in text.split(","):
        name, equals, number = (word.strip() for word in part.partition("="))
        if name not in ("fsdp", "tp") or not equals:
            raise ValueError(
                f"parallel ({text!r}) is made of fsdp=… and tp=…, and {part.strip()!r} is neither; try fsdp=2,tp=2 "
                "(fsdp shares the memory, tp splits the width)"
            )
        if name in found:
            raise ValueError(f"parallel ({text!r}) says {name} twice; say it once")
        if not (number.isascii() and number.isdigit() and int(number)):
            raise ValueError(f"{name} ({number!r}) must be a whole number of at least 1; try {name}=2")
        found[name] = int(number)
    return found


def _other(found: Parallel, world_size: int) -> Parallel:
    """What would fit the processes there are: the same tp if it can be, else fsdp alone."""
    return Parallel(world_size // found.tp, found.tp) if world_size % found.tp == 0 else Parallel(world_size)


def _processes(plan: Parallel) -> str:
    return f"{plan.processes} process" + "es" * (plan.processes > 1)


def _or(choices: list[str]) -> str:
    return choices[0] if len(choices) == 1 else f"{', '.join(choices[:-1])} or {choices[-1]}"


def _own(device: torch.device) -> torch.device:
    """The device of this process alone."""
    if device.type != "cuda":
        return device
    own, there = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
    if own >= there:
        raise ValueError(
            f"torchrun started {os.environ['LOCAL_WORLD_SIZE']} processes here, but there are {there} GPUs; "
            f"use --nproc-per-node {there}"
        )
    torch.cuda.set_device(own)
    return torch.device("cuda", own)


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Without torch's advice about two collectives where one might do: with FSDP over tp there are always two."""
    log = logging.getLogger(name)
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def _whole(value: Tensor) -> Tensor:
    return value.full_tensor() if isinstance(value, DTensor) else value


def _sorted_out(tensors: dict[str, Tensor]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The weights by name, and what the optimizer remembers by name and kind."""
    weights: dict[str, Any] = {}
    memory: dict[str, Any] = defaultdict(dict)
    for key, value in tensors.items():
        whose, _, name = key.partition(".")
        if whose == "model":
            weights[name] = value
        else:
            kind, _, name = name.partition(".")
            memory[name][kind] = value
    return weights, dict(memory)


def _named_groups(model: nn.Module, optimizer: Optimizer) -> list[dict[str, Any]]:
    """The optimizer's groups as they are now, with names instead of parameters."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    return [{**group, "params": [names[p] for p in group["params"]]} for group in optimizer.param_groups]

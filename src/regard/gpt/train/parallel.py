"""Data and tensor parallelism: the processes of a run that torchrun has started.

FSDP2 shards weights, gradients and optimizer state across processes that read different rows (fsdp); tensor parallelism
splits heads and feed-forward channels across processes that read the same rows (tp). Both are torch.distributed's own;
this file only says what is split where.

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
from regard.gpt.train.batches import rows_of_rank
from regard.gpt.train.processes import Processes, find_device, optimizer_state
from regard.support.argument_names import named

COMMAND = "torchrun --standalone --nproc-per-node {} --no-python regard train …"


@dataclass(frozen=True)
class Parallel:
    """The sizes of the device mesh: fsdp shards the memory, tp splits the width.

    >>> Parallel.parse("fsdp=2,tp=4", world_size=8)
    Parallel(fsdp=2, tp=4)
    """

    fsdp: int = 1
    tp: int = 1

    @staticmethod
    def parse(text: str | None, world_size: int | None) -> Parallel:
        """Parse `fsdp=2,tp=2`; None is fsdp for all processes.

        world_size: the number of processes that torchrun has started; None without torchrun.
        """
        if text is None and world_size is not None:
            return Parallel(fsdp=world_size)
        plan = Parallel() if text is None else Parallel(**_parse_sizes(text))
        count = f"{plan.world_size} process" + "es" * (plan.world_size > 1)
        if world_size is None:
            problem = f"is for {count}, but this process was started without torchrun"
            raise ValueError(f"{named('parallel', plan)} {problem}; run {COMMAND.format(plan.world_size)}")
        if plan.world_size != world_size:
            product = f"fsdp={plan.fsdp} × tp={plan.tp}" if min(plan.fsdp, plan.tp) > 1 else str(plan)
            other = Parallel(world_size // plan.tp, plan.tp) if world_size % plan.tp == 0 else Parallel(world_size)
            remedy = f"use --nproc-per-node {plan.world_size}, or {other}"
            raise ValueError(f"{product} is {count} but torchrun started {world_size}; {remedy}")
        return plan

    @property
    def world_size(self) -> int:
        """The number of processes."""
        return self.fsdp * self.tp

    def check(self, config: GPTConfig) -> None:
        """Raise a ValueError unless tp divides the model's heads and feed-forward channels."""
        sizes = {"num_heads": config.num_heads, "num_kv_heads": config.kv_heads, "d_ff": config.inner}
        wrong = [f"{name} ({size})" for name, size in sizes.items() if size % self.tp]
        if wrong:
            fits = [str(n) for n in range(1, config.kv_heads + 1) if not any(size % n for size in sizes.values())]
            choices = " or ".join(filter(None, [", ".join(fits[:-1]), fits[-1]]))
            raise ValueError(f"tp ({self.tp}) must divide {' and '.join(wrong)}; try tp={choices}")

    def __str__(self) -> str:
        return ",".join(f"{name}={n}" for name, n in (("fsdp", self.fsdp), ("tp", self.tp)) if n > 1) or "fsdp=1"


@contextmanager
def init_parallel(
    parallel: str | None = None, device: torch.device | str | None = None, dtype: torch.dtype = torch.float32
) -> Iterator[ParallelProcesses]:
    """Initialize the process group under torchrun, and destroy it at the end.

    device: "cpu" or "cuda" (this process's own GPU); by default cuda if available.
    dtype: the dtype of the forward and backward passes; weights keep their own.
    """
    started = int(os.environ["WORLD_SIZE"]) if {"RANK", "WORLD_SIZE"} <= os.environ.keys() else None
    plan = Parallel.parse(parallel, started)
    own = _device_of_rank(find_device(device))
    # gloo beside NCCL, for messages between processes that need not wait for the GPU.
    dist.init_process_group("cpu:gloo,cuda:nccl" if own.type == "cuda" else "gloo")
    # torch advises to merge two collectives, but FSDP over tp always has two.
    log = logging.getLogger("torch.distributed.tensor._redistribute")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield ParallelProcesses(plan, own, dtype)
    except BaseException:
        # torchrun stops the other processes. With NCCL, destroying the group would wait for them.
        if own.type == "cpu":
            dist.destroy_process_group()
        raise
    else:
        dist.destroy_process_group()
    finally:
        log.setLevel(level)


class ParallelProcesses(Processes):
    """`Processes` of torch.distributed."""

    is_single = False

    def __init__(self, plan: Parallel, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(device)
        self.plan, self.dtype = plan, dtype
        self.mesh = init_device_mesh(device.type, (plan.fsdp, plan.tp), mesh_dim_names=("fsdp", "tp"))
        self.is_main = dist.get_rank() == 0
        self.data_rank = self.mesh.get_local_rank("fsdp")
        self.data_ranks = plan.fsdp

    def check(self, config: GPTConfig, batch: int) -> None:
        self.plan.check(config)
        rows_of_rank(batch, self.data_rank, self.data_ranks)

    def prepare(self, model: nn.Module) -> None:
        """Shard the model, in place, with the main process's weights: heads and feed-forward by tp, everything by fsdp.

        The model may be on the CPU: it is moved block by block, so that a GPU never holds all of it.
        """
        assert isinstance(model, GPT)
        self.plan.check(model.config)
        with torch.no_grad():
            for parameter in model.parameters():
                full = parameter.detach().to(self.device)
                dist.broadcast(full, 0)
                parameter.copy_(full)
        low = self.dtype if self.dtype is not torch.float32 else None
        policy = MixedPrecisionPolicy(param_dtype=low, reduce_dtype=torch.float32 if low else None)
        for block in model.blocks:
            assert isinstance(block, Block)
            if self.plan.tp > 1:
                split_block(block, self.mesh["tp"])
            fully_shard(block, mesh=self.mesh["fsdp"], mp_policy=policy)
        # The rest is one group: embeddings, final norm and head, which may be tied to the embedding.
        fully_shard(model, mesh=self.mesh["fsdp"], mp_policy=policy)
        register_fsdp_forward_method(model, "loss")

    def mean(self, value: Float[Tensor, ""]) -> Float[Tensor, ""]:
        """The mean over all processes; the tp processes of one data rank have the same value."""
        total = value.detach().clone()
        dist.all_reduce(total)
        return total / self.plan.world_size

    def clip_gradients(self, parameters: Iterable[Tensor], max_norm: float) -> Float[Tensor, ""]:
        """Clip by the norm over all shards. Parameters that tp splits are on another mesh: one norm for each mesh."""
        meshes: dict[DeviceMesh, list[Tensor]] = defaultdict(list)
        for parameter in parameters:
            assert isinstance(parameter, DTensor)
            if parameter.grad is not None:
                meshes[parameter.device_mesh].append(parameter)
        totals = [nn.utils.get_total_norm([p.grad for p in group]) for group in meshes.values()]  # type: ignore[misc]
        norms = [total.full_tensor() if isinstance(total, DTensor) else total for total in totals]
        norm: Tensor = torch.linalg.vector_norm(torch.stack(norms))
        for group in meshes.values():
            nn.utils.clip_grads_with_norm_(group, max_norm, norm)
        return norm

    def full_state(self, model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        weights: dict[str, Any] = get_model_state_dict(model, options=options)
        tensors = {f"model.{name}": weight for name, weight in weights.items()}
        if optimizer.state:  # empty before the first step, and torch would take a step to fill it
            optimizer_state: dict[str, Any] = get_optimizer_state_dict(model, optimizer, options=options)
            by_name = optimizer_state.get("state", {})
            tensors |= {f"optimizer.{kind}.{name}": t for name, kinds in by_name.items() for kind, t in kinds.items()}
        return tensors

    def load_full_state(self, model: nn.Module, optimizer: Optimizer, tensors: dict[str, Tensor]) -> None:
        options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
        tensors = tensors if self.is_main else {}
        weights: dict[str, Any] = {k.removeprefix("model."): t for k, t in tensors.items() if k.startswith("model.")}
        by_name = {name: kinds for name in weights if (kinds := optimizer_state(tensors, name))}
        set_model_state_dict(model, weights, options=options)
        if self.any(bool(by_name)):
            names = {parameter: name for name, parameter in model.named_parameters()}
            groups = [{**group, "params": [names[p] for p in group["params"]]} for group in optimizer.param_groups]
            state: dict[str, Any] = {"state": by_name, "param_groups": groups} if self.is_main else {}
            set_optimizer_state_dict(model, optimizer, state, options=options)

    def broadcast(self, value: Any) -> Any:
        values = [value]
        dist.broadcast_object_list(values, 0, device=torch.device("cpu"))
        return values[0]

    def any(self, flag: bool) -> bool:
        total = torch.tensor(int(flag))
        dist.all_reduce(total)
        return bool(total)


def split_block(block: Block, mesh: DeviceMesh) -> None:
    """Split a block's heads and feed-forward channels across the processes of a mesh.

    Each process projects to its own heads, attends with them, and projects back; the results are summed across
    processes, once for attention and once for the feed-forward. Everything else is computed by every process.
    """
    columns = [*(f"attention.W_{name}" for name in ("query", "key", "value")), "feed_forward.up", "feed_forward.gate"]
    plan: dict[str, ParallelStyle] = {
        **{name: ColwiseParallel() for name in columns},
        **{name: RowwiseParallel() for name in ("attention.out_proj", "feed_forward.down")},
        # One weight for all heads, of which each process has some: the sequence axis of this style is the head axis.
        "attention.q_norm": SequenceParallel(sequence_dim=1, use_local_output=True),
        "attention.k_norm": SequenceParallel(sequence_dim=1, use_local_output=True),
    }
    modules = {name for name, _ in block.named_modules()}
    parallelize_module(block, mesh, {name: style for name, style in plan.items() if name in modules})
    block.attention.num_heads //= mesh.size()
    block.attention.num_kv_heads //= mesh.size()


def _parse_sizes(text: str) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for part in text.split(","):
        name, equals, number = (word.strip() for word in part.partition("="))
        if name not in ("fsdp", "tp") or not equals:
            rule = f"is made of fsdp=… and tp=…, and {part.strip()!r} is neither"
            remedy = "try fsdp=2,tp=2 (fsdp shards the memory, tp splits the width)"
            raise ValueError(f"{named('parallel', text, repr)} {rule}; {remedy}")
        if name in sizes:
            raise ValueError(f"{named('parallel', text, repr)} gives {name} twice; give it once")
        if not (number.isascii() and number.isdigit() and int(number)):
            raise ValueError(f"{name} ({number!r}) must be a whole number of at least 1; try {name}=2")
        sizes[name] = int(number)
    return sizes


def _device_of_rank(device: torch.device) -> torch.device:
    """The CPU, or the GPU of this process's local rank."""
    if device.type != "cuda":
        return device
    rank, available = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
    if rank >= available:
        started = f"torchrun started {os.environ['LOCAL_WORLD_SIZE']} processes here"
        raise ValueError(f"{started}, but there are {available} GPUs; use --nproc-per-node {available}")
    torch.cuda.set_device(rank)
    return torch.device("cuda", rank)

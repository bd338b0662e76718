"""What each process of test_parallel.py does: run by torchrun, a few tiny trainings, results to a file.

torchrun --standalone --nproc-per-node 4 tests/gpt/train/many_processes.py FOLDER fsdp=4 fsdp=2,tp=2

When all is done and saved, process 1 fails while the others wait for it: that is one of the tests.
"""

import sys
import warnings
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from regard import GPT, GPTConfig, Rotary

SIZES = {"vocab_size": 31, "context_length": 13}
CONFIGS = {
    "gpt2": GPTConfig(**SIZES, num_layers=2, d_model=20, num_heads=4, d_ff=46),
    "llama": GPTConfig(
        **SIZES,
        num_layers=1,
        d_model=24,
        num_heads=6,
        num_kv_heads=2,
        d_ff=38,
        rotary=Rotary(),
        norm="rms",
        qk_norm=True,
        feed_forward="swiglu",
        qkv_bias=False,
        bias=False,
        tied=False,
    ),
}
STEPS, MORE, MICRO, ROWS, T = 5, 2, 2, 4, 11
MAX_NORM = 0.5  # below every length these runs see, so that clipping always acts


def fresh(config, world, seed=0, dtype=torch.float64):
    """A model in its world, and its optimizer; in float64, where only a mistake makes a difference."""
    torch.manual_seed(seed)
    model = GPT(config).to(dtype)
    world.prepare(model)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)


def train(world, model, optimizer, steps):
    """Losses and gradient lengths of some steps, each of two micro-batches shared out by rows."""
    losses, lengths = [], []
    for step in steps:
        optimizer.zero_grad()
        ids = torch.randint(0, 31, (MICRO, ROWS, T + 1), generator=torch.Generator().manual_seed(step))
        total = 0.0
        for rows in ids:
            own = rows.chunk(world.data_ranks)[world.data_rank]
            loss = model.loss(own[:, :-1], own[:, 1:]) / MICRO
            loss.backward()
            total += world.mean(loss.detach())
        losses.append(total)
        lengths.append(world.clip_gradients(model.parameters(), MAX_NORM))
        optimizer.step()
    return torch.stack(losses), torch.stack(lengths)


def trained(world, config):
    """A run from its beginning: the model, losses and lengths, and all that it has become."""
    # Every process starts elsewhere; that they all have the main one's weights is prepare()'s work.
    model, optimizer = fresh(config, world, seed=0 if world.is_main else 1 + world.data_rank)
    losses, lengths = train(world, model, optimizer, range(STEPS))
    return model, {"losses": losses, "lengths": lengths, **world.full_state(model, optimizer)}


def resumed(world, config, tensors):
    """A run that takes up what another has left."""
    model, optimizer = fresh(config, world, seed=99)
    world.load_full_state(model, optimizer, tensors)
    return train(world, model, optimizer, range(STEPS, STEPS + MORE))[0]


def gathered(value):
    """A number of every process, in order."""
    found = [torch.zeros_like(value) for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather(found, value)
    return torch.stack(found)


def noise(world):
    """The loss of every process for one and the same batch, each data rank with its own noise."""
    model, _ = fresh(CONFIGS["gpt2"].with_(dropout=0.3), world)
    torch.manual_seed(7 + world.data_rank)
    ids = torch.arange(12).view(1, 12)
    return gathered(model.train().loss(ids[:, :-1], ids[:, 1:]).detach())


def copies(model):
    """Of what tp does not split, a sum of every process's own part: of its bits, not of its values."""
    own = [p.to_local() for p in model.parameters() if "tp" not in p.device_mesh.mesh_dim_names]
    return gathered(sum(part.contiguous().view(torch.int64).sum() for part in own))


def narrow(world):
    """Losses of a run in bfloat16, and how many bytes of weights each process holds."""
    from regard.gpt.train.parallel import ParallelProcesses

    world = ParallelProcesses(world.plan, world.device, torch.bfloat16)
    model, optimizer = fresh(CONFIGS["gpt2"], world, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        losses, _ = train(world, model, optimizer, range(2))
    return losses, gathered(torch.tensor(sum(p.to_local().nbytes for p in model.parameters())))


def main(folder, plans):
    from regard.gpt.train.parallel import Parallel, ParallelProcesses, init_parallel

    torch.set_num_threads(1)
    warnings.simplefilter("error")
    with init_parallel(plans[0], device="cpu") as first:
        rank = torch.distributed.get_rank()
        for text in plans:
            plan = Parallel.parse(text, torch.distributed.get_world_size())
            world = first if plan == first.plan else ParallelProcesses(plan, first.device, first.dtype)
            found = {}
            for name, config in CONFIGS.items():
                model, run = trained(world, config)
                found |= {f"{name}/{key}": value for key, value in run.items()}
                found[f"{name}/copies"] = copies(model)
                state = load_file(folder / f"{name}.safetensors") if world.is_main else {}
                found[f"{name}/resumed"] = resumed(world, config, state)
            found["noise"] = noise(world)
            found["narrow"], found["bytes"] = narrow(world)
            found["shared"] = torch.tensor(world.broadcast(100 + rank))
            found["any"] = torch.tensor([world.any(False), world.any(rank == 1)])
            if world.is_main:
                save_file(found, folder / f"{text}.safetensors")
            world.barrier()
        if rank == 1:
            raise ValueError("process 1 has lost its text")
        world.barrier()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])

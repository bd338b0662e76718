"""A process that trains in children and kills them, for test_fit_killed.py. Run as a script: torch is loaded once.

    python killing.py DIRECTORY HOW_MANY

It prints one line of JSON for each kill: at which step of the log it came, and what the resumed run has in the end.
"""

import hashlib
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
import torch._dynamo  # the optimizer asks for it: once, here, and not in every child
from safetensors import safe_open

from regard.gpt import GPT, GPTConfig
from regard.gpt.train.fit import fit
from regard.gpt.train.state import read_log
from regard.support import files

STEPS = 24
WRITES = 15  # fewer than a run has


def train(out):
    """The run that is to be killed: dropout, accumulation, validation, a checkpoint every three steps."""
    torch.manual_seed(1)
    model = GPT(GPTConfig(vocab_size=31, context_length=7, num_layers=1, d_model=8, num_heads=2, dropout=0.2))
    data = torch.randint(31, (500,), generator=torch.Generator().manual_seed(2))
    fit(
        model, data, out=out, steps=STEPS, batch=3, accumulate=2, learning_rate=1e-2, warmup=5, seed=11,
        evaluate_every=5, checkpoint_every=3, val_fraction=0.1, progress=False, device="cpu",
    )  # fmt: skip


def child(out, dies_at=0):
    """A process that trains. It kills itself at this write of a temporary file, some bytes of which are missing."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            if dies_at:
                files._sync = dying_sync(dies_at)
            train(out)
            code = 0
        finally:
            os._exit(code)
    return pid


def dying_sync(dies_at):
    sync, count = files._sync, 0

    def die(path):
        nonlocal count
        count += 1
        if count == dies_at:
            os.truncate(path, path.stat().st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)
        sync(path)

    return die


def finish(out):
    """Run to the end; what came out of it."""
    _, status = os.waitpid(child(out), 0)
    assert status == 0, f"the run in {out} failed"
    last = out / f"checkpoint-{STEPS:08d}.safetensors"
    with safe_open(last, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in sorted(file.keys())}
    digest = hashlib.sha256()
    for name, tensor in tensors.items():
        digest.update(name.encode() + tensor.numpy().tobytes())
    return {
        "log": [[x["step"], x["loss"], x["grad_norm"], x.get("val_loss")] for x in read_log(out / "log.jsonl")],
        "state": digest.hexdigest(),
        "model": hashlib.sha256((out / "model" / "model.safetensors").read_bytes()).hexdigest(),
        "left": [path.name for path in out.rglob(".*.partial")],
    }


def killed(out, chance, seconds, while_writing):
    """Start a run and kill it: at a random moment, or in the midst of a random one of its writes."""
    pid = child(out, dies_at=chance.randint(1, WRITES) if while_writing else 0)
    if not while_writing:
        time.sleep(chance.uniform(0, seconds))
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    writing = any(out.rglob(".*.partial")) if out.exists() else False
    return {"writing": writing, "logged": len(read_log(out / "log.jsonl"))}


def main(directory, how_many):
    torch.set_num_threads(1)
    finish(directory / "warm")
    began = time.monotonic()
    print(json.dumps(finish(directory / "unbroken")), flush=True)
    seconds, chance = time.monotonic() - began, random.Random(5)
    for number in range(how_many):
        out = directory / f"{number}"
        kill = killed(out, chance, seconds, while_writing=number % 2 == 1)
        print(json.dumps(kill | finish(out)), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))

"""A small model, data it can learn, and the options of a short run, for tests of training."""

import json

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from regard.gpt import GPT, GPTConfig
from regard.gpt.train import state

SIZES = {"vocab_size": 31, "context_length": 7, "num_layers": 1, "d_model": 8, "num_heads": 2}
COUNTING = torch.arange(600) % 31
OPTIONS = {"steps": 12, "batch": 4, "learning_rate": 1e-2, "progress": False, "device": "cpu", "val_fraction": 0.1}


def small(seed=1, **changes):
    torch.manual_seed(seed)
    return GPT(GPTConfig(**SIZES | changes))


def as_earlier_version(out, without=()):
    """Rewrite a run as regard wrote it before there were hashes, and before some options."""
    for path in state.checkpoints(out):
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            metadata = dict(file.metadata())
        settings = {name: value for name, value in json.loads(metadata["told"]).items() if name not in without}
        old = {"form": "1", "step": metadata["step"], "told": json.dumps(settings), "best": metadata["best"]}
        save_file(tensors, path, old)
    (out / "hashes.json").unlink()

"""A small model, data it can learn, and the options of a short run, for tests of training."""

import torch

from regard.gpt import GPT, GPTConfig

SIZES = {"vocab_size": 31, "context_length": 7, "num_layers": 1, "d_model": 8, "num_heads": 2}
COUNTING = torch.arange(600) % 31
OPTIONS = {"steps": 12, "batch": 4, "learning_rate": 1e-2, "progress": False, "device": "cpu", "val_fraction": 0.1}


def small(seed=1, **changes):
    torch.manual_seed(seed)
    return GPT(GPTConfig(**SIZES | changes))

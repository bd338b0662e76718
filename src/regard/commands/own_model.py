"""`regard watch` of our own GPT: the model in the box, and where transformers is not installed."""

from __future__ import annotations

import torch

from regard.commands.generate import load
from regard.commands.watch import Opened, check_size
from regard.gpt.checkpoint.model_directory import PACKAGED

BOXED = PACKAGED.name


def opened(name: str, words: str, max_tokens: int | None, device: str) -> Opened:
    """A GPT of ours, from the box, a directory or the hub, and the text in its tokens."""
    model = load(name, device)
    assert model.tokenizer is not None
    ids = model.tokenizer.encode(words)[:max_tokens]
    check_size(len(ids), model.config.context_length)
    tokens = [model.tokenizer.decode([one]) for one in ids]
    return Opened(model, {"ids": torch.tensor([ids])}, tokens, model.config.num_layers)

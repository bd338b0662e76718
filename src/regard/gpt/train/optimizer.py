"""The optimizer, AdamW, and the learning rate schedule: linear warmup, then a cosine."""

from __future__ import annotations

import math

import torch
from torch import nn

from regard.gpt.train.options import Recipe


def adamw(model: nn.Module, recipe: Recipe) -> torch.optim.AdamW:
    """AdamW for all trainable parameters. Only 2-D parameters decay: not norms, not biases."""
    trainable = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trainable if p.dim() >= 2], "weight_decay": recipe.weight_decay},
        {"params": [p for p in trainable if p.dim() < 2], "weight_decay": 0.0},
    ]
    fused = all(p.device.type in ("cpu", "cuda") for p in trainable)
    return torch.optim.AdamW(groups, lr=recipe.learning_rate, betas=recipe.betas, fused=fused)


def learning_rate_at(step: int, recipe: Recipe) -> float:
    """The learning rate of a step, counted from 0.

    >>> recipe = Recipe(steps=100, batch=4, learning_rate=1e-3, warmup=10)
    >>> [round(learning_rate_at(step, recipe), 5) for step in (0, 9, 10, 55, 99)]
    [0.0001, 0.001, 0.001, 0.00054, 0.0001]
    """
    if step < recipe.warmup:
        return recipe.learning_rate * (step + 1) / recipe.warmup
    done = (step - recipe.warmup) / max(1, recipe.steps - 1 - recipe.warmup)
    low, high = recipe.final_learning_rate, recipe.learning_rate
    return low + (high - low) * (1 + math.cos(math.pi * done)) / 2

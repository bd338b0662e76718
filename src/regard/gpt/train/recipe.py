"""Recipe: all that shapes what a run learns, in one place. A run that goes on must be told the same again."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn

from regard.arguments import check_share, check_whole
from regard.gpt.generate.sample import a_seed


@dataclass(frozen=True)
class Recipe:
    """Steps, sizes and rates of a run.

    >>> recipe = Recipe(steps=100, batch=4, context_length=64, learning_rate=1e-3, warmup=10)
    >>> [round(recipe.rate(step), 5) for step in (0, 9, 10, 55, 99)]
    [0.0001, 0.001, 0.001, 0.00054, 0.0001]

    batch: rows of a forward pass, over all processes; accumulate: how many of these are added up for one step.
    min_learning_rate: where the cosine ends; a tenth of learning_rate unless given.
    repeat: the share of rows that say a stretch of text again and again; see Batches.
    clip: gradients longer than this are scaled down to it; math.inf for none.
    """

    steps: int
    batch: int
    context_length: int
    learning_rate: float
    accumulate: int = 1
    min_learning_rate: float | None = None
    warmup: int = 0
    weight_decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.95)
    clip: float = 1.0
    seed: int = 0
    dtype: str = "fp32"
    val_fraction: float = 0.01
    repeat: float = 0.0

    def __post_init__(self) -> None:
        check_whole(steps=self.steps, batch=self.batch, context_length=self.context_length, accumulate=self.accumulate)
        if not 0 < self.learning_rate < math.inf:
            raise ValueError(f"learning_rate ({self.learning_rate}) must be above 0; 1e-3 is usual for a small model")
        if not 0 <= self.lowest <= self.learning_rate:
            raise ValueError(
                f"min_learning_rate ({self.lowest}) must be at least 0 and at most learning_rate ({self.learning_rate})"
            )
        if not 0 <= self.warmup <= self.steps:
            raise ValueError(f"warmup ({self.warmup}) must be at least 0 and at most steps ({self.steps})")
        if not 0 <= self.weight_decay < math.inf:
            raise ValueError(f"weight_decay ({self.weight_decay}) must be at least 0; 0.1 is usual, 0 is none")
        if not self.clip > 0:
            raise ValueError(f"clip ({self.clip}) must be above 0; 1.0 is usual, inf is none")
        if self.dtype not in ("fp32", "bf16"):
            raise ValueError(f"dtype ({self.dtype!r}) must be 'fp32' or 'bf16'")
        check_share("val_fraction", self.val_fraction, "0.01 is usual, 0 is none")
        check_share("repeat", self.repeat, "0 is none, 0.05 is plenty")
        a_seed(self.seed)

    @property
    def lowest(self) -> float:
        """Where the learning rate ends."""
        return self.learning_rate / 10 if self.min_learning_rate is None else self.min_learning_rate

    @property
    def tokens_a_step(self) -> int:
        """Tokens that one step learns from."""
        return self.batch * self.accumulate * self.context_length

    def rate(self, step: int) -> float:
        """The learning rate of a step, counted from 0: up in a line, down in a cosine."""
        if step < self.warmup:
            return self.learning_rate * (step + 1) / self.warmup
        done = (step - self.warmup) / max(1, self.steps - 1 - self.warmup)
        return self.lowest + (self.learning_rate - self.lowest) * (1 + math.cos(math.pi * done)) / 2

    def optimizer(self, model: nn.Module) -> torch.optim.AdamW:
        """AdamW. Only matrices decay: norms and biases have nothing to unlearn."""
        learned = [p for p in model.parameters() if p.requires_grad]
        groups = [
            {"params": [p for p in learned if p.dim() >= 2], "weight_decay": self.weight_decay},
            {"params": [p for p in learned if p.dim() < 2], "weight_decay": 0.0},
        ]
        fused = all(p.device.type in ("cpu", "cuda") for p in learned)
        return torch.optim.AdamW(groups, lr=self.learning_rate, betas=self.betas, fused=fused)

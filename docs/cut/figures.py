"""Draw the figures of docs/cut.md: `python docs/cut/figures.py`, in the directory of the project."""

from pathlib import Path

import matplotlib.pyplot as plt
import torch

import regard
from regard.commands.shared.texts import REPEATED

HERE = Path(__file__).parent
model = regard.GPT.from_pretrained("tiny")
ids = torch.tensor([model.tokenizer.encode(REPEATED)])

figure, (left, right) = plt.subplots(1, 2, figsize=(6.9, 3.9), layout="constrained")
with torch.no_grad():
    with regard.watch(model) as seen:
        model(ids)
    with regard.watch(model) as without, regard.cut(model, (0, 2)):
        model(ids)
seen[4, 3].plot(ax=left)
without[4, 3].plot(ax=right)
left.set_title("head 4.3", loc="left", fontsize=9)
right.set_title("head 4.3, with head 0.2 cut", loc="left", fontsize=9)
figure.savefig(HERE / "induction.png", dpi=130)

once = 1 + torch.randperm(4095, generator=torch.Generator().manual_seed(0))[:32]
figure, both = plt.subplots(2, 1, figsize=(6.0, 6.0), layout="constrained")
for axes, to in zip(both, (0, "mean"), strict=True):
    regard.effect(model, torch.cat([once, once]), to=to).plot(ax=axes)
    axes.set_title(f"growth of the loss per token (nats), to={to!r}", loc="left", fontsize=9)
figure.savefig(HERE / "effects.png", dpi=130)

"""Draw the figures of docs/ladder.md and docs/questions.md: `python docs/ladder/figures.py`."""

from pathlib import Path

import matplotlib.pyplot as plt
import torch

from regard.school.exercises.cat import EYE, VECTORS, WORDS, scores
from regard.show.figures import draw_weights

HERE = Path(__file__).parent
BLUE, GREY, ORANGE = "#2a6f97", "#b8c0c8", "#c8641e"
plt.rcParams.update(
    {
        "svg.hashsalt": "regard",
        "svg.fonttype": "none",
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
)
future = torch.ones(6, 6, dtype=torch.bool).triu(1)
causal = [scores(head).masked_fill(future, -torch.inf).softmax(-1) for head in (0, 1)]


def save(name):
    plt.savefig(HERE / f"{name}.svg", metadata={"Date": None})
    plt.close()


def rung(name, *pairs):
    """Weights of the rung beside those of the rung below."""
    _figure, axes = plt.subplots(1, len(pairs), figsize=(3.2 * len(pairs), 3.1), layout="constrained")
    for ax, (title, weights, hides) in zip(axes, pairs, strict=True):
        draw_weights(weights, WORDS, WORDS, title, mask=~future if hides else None, ax=ax)
    save(name)


def bars(ax, values, title, color):
    ax.bar(WORDS if len(values) == 6 else range(len(values)), values, color=color, width=0.7)
    if len(values) == 6:
        ax.set_xticks(range(6), WORDS)
    ax.set_title(title, loc="left", fontsize=9)
    ax.set_ylim(0, 1)
    ax.set_yticks([0, 0.5, 1])


alike = (VECTORS @ VECTORS.T).softmax(-1)
rung("rung-1", ("Before: each word by itself", EYE, False), ("1 · dot products of the words", alike, False))
rung("rung-2", ("1 · dot products of the words", alike, False), ("2 · queries and keys", scores().softmax(-1), False))
rung("rung-3", ("2 · every word looks everywhere", scores().softmax(-1), False), ("3 · never ahead", causal[0], True))
rung("rung-4", ("4 · head 0: who does it?", causal[0], True), ("4 · head 1: where?", causal[1], True))

figure, axes = plt.subplots(1, 2, figsize=(6.6, 2.1), layout="constrained", sharey=True)
bars(axes[0], alike[2], '"sat" by its own vector: itself first', GREY)
bars(axes[1], scores()[2].softmax(-1), '"sat" by W_query and W_key: cat', BLUE)
save("matrices")

figure, axes = plt.subplots(2, 3, figsize=(6.6, 3.2), layout="constrained", sharey=True)
random = torch.Generator().manual_seed(1)
for column, width in enumerate((4, 64, 1024)):
    q, k = torch.randn(width, generator=random), torch.randn(16, width, generator=random)
    bars(axes[0, column], (k @ q).softmax(-1).sort(descending=True).values, f"head_dim {width}, not scaled", ORANGE)
    scaled = (k @ q / width**0.5).softmax(-1).sort(descending=True).values
    bars(axes[1, column], scaled, f"head_dim {width}, divided by √D", BLUE)
save("scale")

figure, axes = plt.subplots(1, 3, figsize=(8.4, 2.9), layout="constrained")
for ax, title, hides in ((axes[0], "scores", False), (axes[1], "−∞ over the future", True)):
    ax.imshow(scores().masked_fill(future & torch.tensor(hides), torch.nan), cmap="Greys", vmax=8)
    for i, j in ((i, j) for i in range(6) for j in range(6)):
        text = "−∞" if hides and j > i else f"{scores()[i, j]:.1f}"
        ax.text(j, i, text, ha="center", va="center", fontsize=7)
    ax.set_xticks(range(6), WORDS)
    ax.set_yticks(range(6), WORDS)
    ax.xaxis.tick_top()
    ax.set_title(title, loc="left", fontsize=9)
draw_weights(causal[0], WORDS, WORDS, "softmax: rows sum to 1", mask=~future, ax=axes[2])
save("mask")

figure, axes = plt.subplots(1, 3, figsize=(8.4, 2.1), layout="constrained", sharey=True)
blend = ((scores(0) + scores(1)) / 2).masked_fill(future, -torch.inf).softmax(-1)
bars(axes[0], blend[3], '"on" with one head: a blend', GREY)
bars(axes[1], causal[0][3], "head 0: who does it?", BLUE)
bars(axes[2], causal[1][3], "head 1: what happens there?", BLUE)
save("heads")

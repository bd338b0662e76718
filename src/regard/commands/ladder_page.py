"""The ladder as reports of a page: a number can be followed through each of its four rungs."""

import torch
from torch import Tensor, nn

from regard.heads.watch import watch
from regard.ladder import SENTENCE, VECTORS, CausalAttention, MultiHeadAttention, SelfAttention, simplified_attention
from regard.show.page.payload import Titled
from regard.support.tokens import TextTokens
from regard.traces.trace import trace

START = {"view": "steps"}  # what the page shows first
SEED = 123  # of the weights of rungs 2 to 4


class SimplifiedAttention(nn.Module):
    """Rung 1 as a module: what is watched is a module."""

    def forward(self, x: Tensor) -> Tensor:
        """x mixed by how alike its rows are."""
        return simplified_attention(x)


def trainable_rungs() -> list[nn.Module]:
    """Rungs 2 to 4, in the sizes of the worked example."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        rungs = [
            SelfAttention(3, 2),
            CausalAttention(3, 2, context_length=6, dropout=0.0),
            MultiHeadAttention(3, 4, context_length=6, dropout=0.0, num_heads=2),
        ]
    return [layer.eval() for layer in rungs]


def ladder_reports() -> list[Titled]:
    """The four rungs, each run on the worked example, with their steps.

    >>> [report.title for report in ladder_reports()]
    ['1 simplified', '2 self-attention', '3 causal', '4 multi-head']
    """
    tokens = TextTokens([word if i == 0 else f" {word}" for i, word in enumerate(SENTENCE)])
    titles = ("1 simplified", "2 self-attention", "3 causal", "4 multi-head")
    reports = []
    for title, layer in zip(titles, [SimplifiedAttention().eval(), *trainable_rungs()], strict=True):
        x = VECTORS if isinstance(layer, SimplifiedAttention) else VECTORS[None]
        with torch.no_grad():
            with watch(layer) as seen:
                layer(x)
            reports.append(Titled(title, seen, 0, tokens, {0: trace(layer, x)}))
    return reports

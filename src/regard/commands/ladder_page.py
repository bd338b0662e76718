"""The ladder as reports of a page: a number can be followed through each of its four rungs."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.heads.watch import watch
from regard.ladder import SENTENCE, VECTORS, CausalAttention, MultiHeadAttention, SelfAttention, simplified_attention
from regard.show.page.payload import Titled
from regard.support.tokens import TextTokens
from regard.traces.trace import trace

SEED = 123  # of the weights of rungs 2 to 4, as in `regard trace`


class SimplifiedAttention(nn.Module):
    """Rung 1 as a module: what is watched is a module."""

    def forward(self, x: Tensor) -> Tensor:
        """x mixed by how alike its rows are."""
        return simplified_attention(x)


def ladder_reports() -> list[Titled]:
    """The four rungs, each run on the worked example, with their steps.

    >>> [report.title for report in ladder_reports()]
    ['1 simplified', '2 self-attention', '3 causal', '4 multi-head']
    """
    tokens = TextTokens([word if i == 0 else f" {word}" for i, word in enumerate(SENTENCE)])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        rungs: list[tuple[str, nn.Module, Tensor]] = [
            ("1 simplified", SimplifiedAttention(), VECTORS),
            ("2 self-attention", SelfAttention(3, 2), VECTORS[None]),
            ("3 causal", CausalAttention(3, 2, context_length=6, dropout=0.0), VECTORS[None]),
            ("4 multi-head", MultiHeadAttention(3, 4, context_length=6, dropout=0.0, num_heads=2), VECTORS[None]),
        ]
    reports = []
    for title, layer, x in rungs:
        layer.eval()
        with torch.no_grad():
            with watch(layer) as seen:
                layer(x)
            reports.append(Titled(title, seen, 0, tokens, {0: trace(layer, x)}))
    return reports

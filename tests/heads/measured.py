"""Effects to test with."""

import math

import torch

from regard.heads.change.effects import Measured
from regard.support.tokens import TextTokens

NAN = math.nan


def measured(texts=1, chosen=None):
    """Two layers of 2 and 3 heads; the cuts are 0.1, 1.0, layer 1 and 0.1+1.2, which cost 0.5, 2, −1 and 0."""
    cuts = [((0, 1),), ((1, 0),), ((1, 0), (1, 1), (1, 2)), ((0, 1), (1, 2))]
    changes = torch.tensor([[NAN, 0.25, 0.75], [NAN, 3.0, 1.0], [NAN, -1.5, -0.5], [NAN, 1.0, -1.0]]).double()
    losses = torch.tensor([NAN, 2.0, 3.0]).double()
    tokens = [TextTokens(["The", " cat", " sat"])] * texts
    roles = {(0, 0): "mixed", (0, 1): "previous token", (1, 0): "induction", (1, 1): "self", (1, 2): "local"}
    several = [changes * (1 + text) for text in range(texts)]
    return Measured(cuts, [losses] * texts, several, chosen and [chosen] * texts, [2, 3], roles, tokens, "0")

"""Your GPT: your own files become one model."""

from importlib import import_module
from pathlib import Path

import torch
from torch import nn


def mine(name):  # your file for an exercise, as a module
    return import_module(min(Path(__file__).parent.glob(f"[0-9]*_{name}.py")).stem)


blocks, gpts, embed = mine("block"), mine("gpt"), mine("embeddings").embed
blocks.norm = gpts.norm = lambda x, w: mine("layer_norm").layer_norm(x, *w)
blocks.attention, gpts.block = lambda x, w: w["attention"](x), lambda x, w: blocks.block(x, w)
gpts.embed = lambda ids, w: embed(ids, w["words"], w["position_table"])


class Block(nn.Module):
    def __init__(self, E, heads, context):
        super().__init__()
        self.attention = mine("whole_layer").MultiHeadAttention(E, E, context, 0.0, heads)
        self.up, self.down = (nn.Parameter(torch.randn(sizes) / E**0.5 / 2) for sizes in ((E, 4 * E), (4 * E, E)))
        self.norm_1, self.norm_2 = (nn.Parameter(torch.eye(2, 1).repeat(1, E)) for _ in range(2))

    def weights(self):
        return dict(self.named_parameters(recurse=False), attention=self.attention)


class GPT(nn.Module):
    def __init__(self, vocabulary, E, heads, depth, context):
        super().__init__()
        self.words, self.position_table = (nn.Parameter(torch.randn(n, E)) for n in (vocabulary, context))
        self.token_table = nn.Parameter(torch.randn(vocabulary, E) / E**0.5)  # of its own: not tied
        self.blocks = nn.ModuleList(Block(E, heads, context) for _ in range(depth))
        self.final_norm = nn.Parameter(torch.eye(2, 1).repeat(1, E))

    def forward(self, ids):
        w = dict(self.named_parameters(recurse=False))
        return gpts.gpt(ids, w | {"blocks": [one.weights() for one in self.blocks]})


@torch.no_grad()
def write(model, ids, count, context, t):
    for _ in range(count):
        logits = model(ids[:, -context:])[0, -1]
        new = torch.multinomial(mine("sampling").temperature(logits, t), 1)
        ids = torch.cat([ids, new[None]], dim=1)
    return ids  # (1, T + count)

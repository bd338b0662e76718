"""routes: the ways on which attention passes from one token to another, layer by layer, and a cut of each as the proof.

A route is about weights, not about what was carried: values, output projections and MLPs are left out. The view Flow of
the page computes the same, in js/data/routes.js.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.heads.change.cut import cut
from regard.heads.report.report import Seen
from regard.heads.report.views import Index, numbers_of, place
from regard.support.arguments import check_whole


class Move(NamedTuple):
    """A step to another token: in this layer, this query looks at this key; the head that gives it most weight."""

    layer: int
    head: int
    query: int
    key: int
    weight: float


@dataclass(frozen=True)
class TokenRoute:
    """One way through the layers. tokens: where it is before each layer, and after the last.

    strength: the product of its steps. share: by="mean", its part of all routes between its ends; None by heads.
    """

    tokens: tuple[int, ...]
    strength: float
    share: float | None
    moves: tuple[Move, ...]

    @contextmanager
    def cut(self, model: nn.Module) -> Iterator[None]:
        """Remove its moves while the model runs: by heads only in the head that gives most, by mean in every head."""
        with ExitStack() as stack:
            for move in self.moves:
                where: dict[str, Any] = (
                    {"layers": move.layer} if self.share is not None else {"heads": (move.layer, move.head)}
                )
                stack.enter_context(cut(model, edges=[(move.query, move.key)], **where))
            yield


class _Layer(NamedTuple):
    """Weights between tokens, each (T, T): the mean of the heads, the largest of any head, and which head that is."""

    number: int
    mean: Tensor
    most: Tensor
    head: Tensor

    def steps(self, by: str) -> Tensor:
        if by == "mean":
            return self.mean / 2 + torch.eye(len(self.mean), dtype=self.mean.dtype) / 2
        return self.most.clone().fill_diagonal_(1)


@torch.no_grad()
def routes(seen: Seen, start: Index, end: Index, count: int = 6, by: str = "heads", text: int = 0) -> list[TokenRoute]:
    """The strongest routes from a token of the input to a token after the last layer, strongest first.

    >>> import regard
    >>> gpt = regard.GPT.from_pretrained("tiny")
    >>> words = "Alice was beginning to get very tired, and Alice was beginning to get very tired."
    >>> with torch.no_grad(), regard.watch(gpt) as seen:
    ...     out = gpt(torch.tensor([gpt.tokenizer.encode(words)]))
    >>> best = regard.routes(seen, start="beginning@3", end="beginning@13")[0]
    >>> [(move.layer, move.head) for move in best.moves]
    [(0, 2), (4, 3)]
    >>> with best.cut(gpt):
    ...     after = gpt(torch.tensor([gpt.tokenizer.encode(words)]))

    start, end: positions or words. text: of the batch.
    by: "heads": a step to another token is the largest weight that one head of the layer gives, and to stay, in the
        residual stream, is 1. [default]
        "mean": a step is ½ · (mean of the heads' weights), + ½ to stay, as in `seen.rollout`; all routes together are
            the rollout, and each has its share of it.
    """
    if by not in ("heads", "mean"):
        raise ValueError(f'by={by!r} is not known; routes go by="heads" or by="mean"')
    check_whole(count=count)
    layers = _layers(seen, text)
    ends = [_one_token(seen, token, name, text) for token, name in ((start, "start"), (end, "end"))]
    total = None
    if by == "mean":
        amounts = torch.zeros(len(layers[0].mean), dtype=torch.float64)
        amounts[ends[1]] = 1
        for layer in reversed(layers):
            amounts = amounts @ layer.steps(by)
        total = float(amounts[ends[0]])
    found = _strongest([layer.steps(by) for layer in layers], ends[0], ends[1], count)
    return [
        TokenRoute(tokens, strength, None if total is None else strength / total, tuple(_moves(layers, tokens)))
        for strength, tokens in found
    ]


def _layers(seen: Seen, text: int) -> list[_Layer]:
    sizes = [layer[0][2:] for layer in seen.sizes()]
    if not sizes or len(set(sizes)) > 1 or sizes[0][0] != sizes[0][1]:
        listed = ", ".join(f"{n}: {T} × {S}" for n, (T, S) in enumerate(sizes))
        raise ValueError(
            f"routes need layers in which one text attends to itself, all of one length; these are {listed or 'none'} "
            "(queries × keys); watch one stack of the model"
        )
    text = place(text, seen.sizes()[0][0][0], "text", f"there are {seen.sizes()[0][0][0]}")
    layers = []
    for number, view in enumerate(seen):
        weights = view.weights(text=text)[0].double().cpu()
        most, head = weights.max(0)
        layers.append(_Layer(number, weights.mean(0), most, head))
    return layers


def _one_token(seen: Seen, token: Index, name: str, text: int) -> int:
    numbers = numbers_of(seen[0].record, token, name, text).tolist()
    if len(numbers) != 1:
        raise ValueError(f"{name} is one token and {token!r} is {len(numbers)}; name one of them: {numbers}")
    return int(numbers[0])


def _strongest(steps: list[Tensor], start: int, end: int, count: int) -> list[tuple[float, tuple[int, ...]]]:
    """The `count` largest products of steps from start to end, and their tokens."""
    T = len(steps[0])
    strengths = torch.zeros(T, 1, dtype=torch.float64)  # of the strongest ways to each token, (T, ways)
    strengths[start] = 1
    chosen: list[Tensor] = []  # for each layer: which way, of all tokens, each strongest way continues
    for step in steps:
        products = (step[:, :, None] * strengths).flatten(1)  # (T, T · ways)
        strengths, places = products.topk(min(count, products.shape[1]), dim=-1)
        chosen.append(places)
    found = []
    for number, strength in enumerate(strengths[end].tolist()):
        if strength <= 0:
            continue
        tokens, token, way = [end], end, number
        for layer in range(len(steps) - 1, -1, -1):
            ways = chosen[layer - 1].shape[1] if layer else 1
            token, way = divmod(int(chosen[layer][token, way]), ways)
            tokens.append(token)
        found.append((strength, tuple(reversed(tokens))))
    return found


def _moves(layers: list[_Layer], tokens: tuple[int, ...]) -> Iterator[Move]:
    for layer, key, query in zip(layers, tokens, tokens[1:], strict=False):
        if key != query:
            yield Move(layer.number, int(layer.head[query, key]), query, key, float(layer.most[query, key]))

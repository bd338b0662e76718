"""What a page needs to run a model itself: the model, its tokenizer, and what statistics and roles are.

The formulas of weights on one key, the thresholds and the texts of roles come from their registries; js/model/ has the
others by name, and a test compares every value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from regard.heads.measure.registry import AVERAGED, BY_NAME
from regard.heads.report import roles
from regard.show.page.encode import compress
from regard.show.page.html import live_html, read_asset
from regard.show.page.long import LONGEST_EXACT
from regard.show.page.payload import describe_page
from regard.show.page.steps import LayerSizes, describe_steps
from regard.support.drawing import as_live
from regard.traces.trace import Trace

LARGEST = 100 << 20  # bytes of a model; the browser keeps it as text, unpacked and as float32
LONGEST_TEXT = 20_000  # characters that the page encodes; more are refused before that


def describe_measures() -> dict[str, Any]:
    """The averaged statistics and the roles, as js/model/statistics.js and roles.js read them.

    >>> describe_measures()["targets"]["previous"]
    {'start': 'OWN', 'step': -1}
    """
    targets = {name: BY_NAME[name].target for name in AVERAGED}
    return {
        "averaged": list(AVERAGED),
        "targets": {n: {"start": one.start.name, "step": one.step} for n, one in targets.items() if one is not None},
        "positional": [name for name in AVERAGED if BY_NAME[name].positional],
        "roles": [
            {"name": one.name, "statistic": one.statistic, "phrase": one.phrase, "repeated": one.repeated}
            | {"clear": one.clear}
            for one in roles.ROLES.values()
        ],
        "pattern": roles.PATTERN,
        "local": roles.LOCAL,
        "local_tokens": roles.LOCAL_TOKENS,
        "broad": roles.BROAD,
        "enough": roles.ENOUGH,
    }


# What js/model/engine.js records of a layer; other steps are computed from these, or read in another order.
_RECORDED = {"x", "queries", "keys", "values", "out"} | {f"{a}{b}" for a in ("normed", "turned") for b in ("", " keys")}


def describe_layers(layers: Sequence[Any]) -> list[dict[str, Any] | None]:
    """The steps of layers that regard.gpt.live_model traced."""
    described = []
    for one in layers:
        sizes = one and LayerSizes(one.heads, one.kv_heads, one.length, one.length)
        described.append(one and _describe_layer(one.trace, sizes, one.windowed))
    return described


def _describe_layer(trace: Trace, sizes: LayerSizes, windowed: bool) -> dict[str, Any] | None:
    """The steps of a layer, as a short text has them, without numbers; None where the page cannot compute them.

    js/model/live-steps.js gives them the length of another text.
    """
    steps, _ = describe_steps(trace, sizes, 0, "")
    names: dict[str, str] = {}  # of each block, the first step in it: the others are the same numbers
    for one in steps:
        if one["block"] is not None:
            names.setdefault(one["block"], one["name"])
    hidden = any(one["made"] and one["made"]["hidden"] for one in steps)
    if hidden or windowed or not set(names.values()) <= _RECORDED:
        return None
    return {"length": sizes.T, "steps": [one | {"block": one["block"] and names[one["block"]]} for one in steps]}


@dataclass(frozen=True)
class LivePage:
    """A page that runs its model: the text it begins with may be changed, heads may be cut.

    plan, weights, tokenizer: the model, as regard.support.drawing.as_live has it. steps: of describe_layers. name: what
    the page calls the model. text: what it begins with. examples: others worth trying, by what is to be seen. longest:
    tokens that it reads at most.
    """

    plan: Mapping[str, Any]
    weights: bytes
    tokenizer: Mapping[str, Any]
    steps: Sequence[Mapping[str, Any] | None]
    name: str
    text: str
    examples: Mapping[str, str]
    longest: int = LONGEST_EXACT

    def html(self) -> str:
        """The page as one HTML document, which holds the model."""
        settings = {"models": [self.name], "text": self.text, "longest": LONGEST_TEXT}
        settings |= {"examples": list(self.examples.items())}
        live = {
            "plan": self.plan,
            "tokenizer": self.tokenizer,
            "measures": describe_measures(),
            "steps": list(self.steps),
            "longest": min(self.longest, self.plan["context"]),
            "page": describe_page([]),
        }
        blocks = {"worker": compress(read_asset("model.js").encode()), "model": compress(self.weights)}
        return live_html(f"{self.name} · regard", {"settings": settings, "live": live}, blocks)


# Five texts worth trying, by what is to be seen in them. The first is the one that a page begins with.
EXAMPLES = {
    "said twice": (
        "Alice was beginning to get very tired of sitting by her sister on the bank,\n"
        "and Alice was beginning to get very tired of sitting by her sister on the bank.\n"
    ),
    "made-up words": "xq zor blim tak, xq zor blim",
    "a rhyme": "Twinkle, twinkle, little star, how I wonder what you are! Twinkle, twinkle, little",
    "nothing twice": "The cat sat on the mat because it was tired",
    "a story": "Once upon a time there was a little girl who lived in a",
}


def live_page(model: nn.Module, name: str, text: str | None = None, longest: int = LONGEST_EXACT) -> LivePage:
    """The page of a model. text: what it begins with. [default: the first example] longest: tokens read at most."""
    check_size(model, name)
    live = as_live(model)
    first = next(iter(EXAMPLES.values()))
    text = first if text is None else text
    return LivePage(
        live.plan, live.weights, live.tokenizer, describe_layers(live.layers), name, text, EXAMPLES, longest
    )


def check_size(model: nn.Module, name: str) -> None:
    """Refuse a model that is too large for a page."""
    size = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    if size > LARGEST:
        raise ValueError(
            f"{name} has {size / 2**20:,.0f} MiB of weights, and a page that runs its model holds at most "
            f"{LARGEST >> 20} MiB; a page of one text shows models of any size"
        )

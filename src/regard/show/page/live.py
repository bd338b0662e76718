"""What a page needs to run a model itself: the model, its tokenizer, and what statistics and roles are.

The formulas of weights on one key, the thresholds and the texts of roles come from their registries; js/model/ has the
others by name, and a test compares every value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from regard.heads.measure.registry import AVERAGED, BY_NAME
from regard.heads.report import roles
from regard.show.page.encode import compress
from regard.show.page.html import live_html, read_asset
from regard.show.page.long import LONGEST_EXACT
from regard.show.page.payload import describe_page

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


@dataclass(frozen=True)
class LivePage:
    """A page that runs its model: the text it begins with may be changed, heads may be cut.

    plan, weights: the model, as regard.gpt.portable has it; tokenizer: its tables, of regard.gpt.tokenizer.portable.
    name: what the page calls the model. text: what it begins with. longest: tokens that it reads at most.
    """

    plan: Mapping[str, Any]
    weights: bytes
    tokenizer: Mapping[str, Any]
    name: str
    text: str
    longest: int = LONGEST_EXACT

    def html(self) -> str:
        """The page as one HTML document, which holds the model."""
        settings = {"models": [self.name], "text": self.text, "longest": LONGEST_TEXT, "cuts": True}
        live = {
            "plan": self.plan,
            "tokenizer": self.tokenizer,
            "measures": describe_measures(),
            "longest": min(self.longest, self.plan["context"]),
            "page": describe_page([]),
        }
        blocks = {"worker": compress(read_asset("model.js").encode()), "model": compress(self.weights)}
        return live_html(f"{self.name} · regard", {"settings": settings, "live": live}, blocks)

"""Roles: a readable name for what a head does, with the score that says so and the threshold it passed.

| role           | score                                                             | threshold                    |
| -------------- | ----------------------------------------------------------------- | ---------------------------- |
| induction      | mean weight on the token after the last occurrence of this one    | 0.4 of the remaining range   |
| duplicate      | mean weight on the last occurrence of this token                  | 0.4 of the remaining range   |
| previous token | mean weight on the token before                                   | 0.4 of the remaining range   |
| self           | mean weight on the token itself                                   | 0.4 of the remaining range   |
| first token    | mean weight on the first token                                    | 0.4 of the remaining range   |
| position       | mean weight on one position, or at one distance, whatever the token | 0.4 of the remaining range |
| local          | 1 − distance ÷ the distance of uniform attention                  | 0.75, and at most 16 tokens  |
| broad          | entropy ÷ the entropy of uniform attention                        | 0.8                          |
| mixed          | none of these                                                     |                              |

Uniform attention over n visible keys already puts 1/n on each of them. "0.4 of the remaining range" is that chance c
plus 0.4 of the range from there to 1: c + 0.4 · (1 − c). Over a long text this is 0.4, the customary value; in a
sentence of six words it is more.

The first rule that holds gives the role:
1. induction, duplicate (the larger), unless the same weight is the previous token's or the token's own: in a run of
   one token ("aaaa") the simpler name is used. They come before the first token because such heads attend to it
   wherever nothing is repeated, and before position because in a text of one repeated passage their distance is fixed.
2. previous token, self, first token: the largest of those that pass.
3. position, local, broad.
A score needs at least four tokens. Heads of cross-attention can be first token, position (one position), broad or
mixed: no key is a query's own token, or near it.

Compared with TransformerLens' detect_head (error_measure="mul"): its previous-token score is the same sum of weights,
divided by all rows; ours leaves out the first row, which has no previous token. Its duplicate and induction patterns
take every earlier occurrence, ours the last, and it divides by all rows, ours by those whose token occurred before; on
a passage of different tokens that is repeated once, the two differ by that divisor only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.heads.measure.registry import AVERAGED, BY_NAME
from regard.heads.report.record import Record

PATTERN = 0.4  # of the range from chance to 1
LOCAL, LOCAL_TOKENS = 0.75, 16.0
BROAD = 0.8
ENOUGH = 4  # tokens that a score needs


@dataclass(frozen=True)
class Role:
    """What a head seems to do.

    >>> print(Role("previous token", 0.93, 0.41, "weight on the previous token 0.93 on average, threshold 0.41"))
    previous token: weight on the previous token 0.93 on average, threshold 0.41
    """

    name: str
    score: float
    threshold: float
    evidence: str

    def __str__(self) -> str:
        return f"{self.name}: {self.evidence}"

    @property
    def clear(self) -> bool:
        """Does the head do one thing?"""
        return self.name not in ROLES or ROLES[self.name].clear


UNIT = 1 << 32  # the largest weights are summed in whole numbers of 2⁻³², so that no order of adding changes a sum


class Tally:
    """Means over all rows of one layer, in one forward or several, from which roles are computed.

    sums: by statistic, (4, H): its sum, the number of rows, the sums of 1 / visible keys and of uniform attention.
    steps, places: whole numbers, (H, 2 · reach + 1) and (H, reach + 1): the largest weights, in UNITs, by steps back,
    from −reach, and by the position of their key.
    """

    def __init__(self, sums: Mapping[str, Tensor], steps: Tensor, places: Tensor) -> None:
        self._reach, self._steps, self._places = places.shape[1] - 1, steps.cpu(), places.cpu()
        self._means: dict[str, Tensor] = {}  # (4, H): the mean, the number of rows, the means of the other two
        for name, (total, rows, chance, uniform) in sums.items():
            self._means[name] = torch.stack([total / rows, rows, chance / rows, uniform / rows]).cpu()

    @classmethod
    def of(cls, records: Sequence[Record]) -> Tally:
        """Those of these records."""
        heads, reach = records[0].sizes[1], max(max(record.sizes[2:]) for record in records)
        sums: dict[str, Tensor] = {}
        steps = torch.zeros(heads, 2 * reach + 1, dtype=torch.long)
        places = torch.zeros(heads, reach + 1, dtype=torch.long)
        for record in records:
            visible, distance = (x.cpu().double() for x in record.visible())
            uniform = uniform_values(visible, distance)
            for name in filter(record.has, AVERAGED):
                rows = record.read(name).cpu().double()  # (B, H, T)
                each = torch.stack([rows, torch.ones_like(rows), 1 / visible, uniform.get(name, rows)])
                sums[name] = sums.get(name, 0) + torch.where(rows.isnan(), 0.0, each).nansum((1, 3))
            add_largest(record, steps, places)
        return cls(sums, steps, places)

    def means(self, head: int) -> dict[str, float]:
        """The mean of each statistic that was collected, over the rows that have a value; NaN where none has."""
        return {name: float(self._means[name][0, head]) for name in AVERAGED if name in self._means}

    def role(self, head: int) -> Role:
        """The role of one head."""
        patterns = [(kind, role) for kind in ROLES.values() if kind.statistic and (role := self._pattern(kind, head))]
        passed = [(kind, role) for kind, role in patterns if role.score >= role.threshold]
        simpler = max((role.score for kind, role in patterns if BY_NAME[kind.statistic].positional), default=0.0)
        for repeated, more_than in ((True, simpler), (False, 0.0)):
            able = [role for kind, role in passed if kind.repeated is repeated and role.score > more_than]
            if able:
                return max(able, key=lambda role: role.score)
        others = [role for kind in ROLES.values() if kind.compute and (role := kind.compute(self, head))]
        for role in others:
            near = role.name != "local" or float(self._means["distance"][0, head]) <= LOCAL_TOKENS
            if role.score >= role.threshold and near:
                return role
        return _mixed([*(role for _, role in patterns), *others])

    def _known(self, statistic: str, head: int) -> tuple[float, int, float, float] | None:
        """Mean, number of rows, threshold of a pattern, and mean of uniform attention; None where rows are too few."""
        if statistic not in self._means or float(self._means[statistic][1, head]) < ENOUGH:
            return None
        mean, rows, chance, uniform = self._means[statistic][:, head].tolist()
        return mean, int(rows), chance + PATTERN * (1 - chance), uniform

    def _pattern(self, kind: RoleKind, head: int) -> Role | None:
        if (known := self._known(kind.statistic, head)) is None:
            return None
        score, rows, threshold, _ = known
        over = f" over {rows} repeated tokens" if kind.repeated else " on average"
        evidence = f"weight on {kind.phrase} {score:.2f}{over}, threshold {threshold:.2f}"
        return Role(kind.name, score, threshold, evidence)

    def _position(self, head: int) -> Role | None:
        if (known := self._known("largest", head)) is None:
            return None
        _, rows, threshold, _ = known
        back = self._steps[head].clone()
        back[self._reach : self._reach + 2] = 0  # the token itself and the previous one are roles of their own
        steps, key = int(back.argmax()) - self._reach, int(self._places[head].argmax())
        score, place = max(
            (float(back.max()) / UNIT / rows, f"the token {abs(steps)} {'back' if steps > 0 else 'ahead'}"),
            (float(self._places[head].max()) / UNIT / rows, f"token {key}"),
            key=lambda scored: scored[0],
        )
        evidence = f"weight on {place} {score:.2f} on average, threshold {threshold:.2f}"
        return Role("position", score, threshold, evidence)

    def _local(self, head: int) -> Role | None:
        mean, _, _, uniform = self._known("distance", head) or (0.0, 0, 0.0, 0.0)
        if not uniform > 0:
            return None
        score = 1 - mean / uniform
        evidence = (
            f"looks {mean:.1f} tokens away on average where uniform attention would be {uniform:.1f}: "
            f"{score:.2f} nearer, threshold {LOCAL:.2f} and at most {LOCAL_TOKENS:.0f} tokens"
        )
        return Role("local", score, LOCAL, evidence)

    def _broad(self, head: int) -> Role | None:
        mean, _, _, uniform = self._known("entropy", head) or (0.0, 0, 0.0, 0.0)
        if not uniform > 0:
            return None
        score = mean / uniform
        return Role("broad", score, BROAD, f"entropy {score:.2f} of uniform attention's, threshold {BROAD:.2f}")


def _mixed(others: list[Role]) -> Role:
    if not others:
        why = f"fewer than {ENOUGH} tokens, or nothing collected to compute a role from"
        return Role("mixed", math.nan, math.nan, why)
    nearest = max(others, key=lambda role: role.score - role.threshold)
    return Role("mixed", nearest.score, nearest.threshold, f"nothing passes; nearest is {nearest}")


def uniform_values(visible: Tensor, distance: Tensor) -> dict[str, Tensor]:
    """What statistics would be for uniform attention, where roles compare them with that."""
    return {"entropy": visible.log(), "distance": distance}


def add_largest(record: Record, steps: Tensor, places: Tensor) -> None:
    """Add the largest weight of each row, by steps back and by the position of its key: see Tally."""
    if not record.has("largest", "largest_key"):
        return
    key = record.read("largest_key").to(steps.device).long()  # (B, H, T)
    weight = record.read("largest").to(steps.device)
    weight = torch.where((key < 0) | weight.isnan(), 0.0, weight).double().mul(UNIT).round().long()
    places.scatter_add_(1, _by_head(key.clamp(min=0)), _by_head(weight))
    if record.has_positions:  # no distance is defined otherwise, as in cross-attention
        reach = places.shape[1] - 1
        back = torch.where(key < 0, 0, record.positions().to(steps.device) - key) + reach
        steps.scatter_add_(1, _by_head(back), _by_head(weight))


def _by_head(x: Tensor) -> Tensor:
    """(B, H, T) → (H, B · T)"""
    return x.transpose(0, 1).flatten(1)


@dataclass(frozen=True)
class RoleKind:
    """A role that heads can have, with everything that is said and drawn of it.

    about: the sentence of a legend.
    colors: on the page, in its light and in its dark theme; figures use the first.
    glyph: the shape that it draws on a map of weights, as an SVG path in a square of 12; filled where it ends in z.
    terminal: the colour of its name in a table; "" for none.
    statistic, phrase: of a role whose score is the mean weight on one key, and how the evidence names that key.
    compute: of any other role, what computes it for one head; None where too little is known.
    clear: does a head of this role do one thing?
    """

    name: str
    about: str
    colors: tuple[str, str]
    glyph: str
    terminal: str = ""
    statistic: str = ""
    phrase: str = ""
    compute: Callable[[Tally, int], Role | None] | None = None
    clear: bool = True

    @property
    def short(self) -> str:
        """The name in one word."""
        return self.name.removesuffix(" token")

    @property
    def repeated(self) -> bool:
        """Is it about tokens that occurred before?"""
        return bool(self.statistic) and BY_NAME[self.statistic].needs_tokens


# In the order of the rules. Whatever shows roles reads them here.
ROLES = {
    kind.name: kind
    for kind in (
        RoleKind(
            "induction",
            "Looks at the token that followed the last occurrence of this one.",
            colors=("#b84a00", "#ff9d5c"),
            glyph="M1 5l6 6",
            terminal="magenta",
            statistic="induction",
            phrase="the token after the last occurrence of this one",
        ),
        RoleKind(
            "duplicate",
            "Looks at the last occurrence of the same token.",
            colors=("#8a4b2a", "#d39a78"),
            glyph="M1 5l6 6",
            terminal="magenta",
            statistic="duplicate",
            phrase="the last occurrence of this token",
        ),
        RoleKind(
            "previous token",
            "Looks at the token just before.",
            colors=("#0062a3", "#69b4ec"),
            glyph="M1 2l9 9",
            terminal="green",
            statistic="previous",
            phrase="the previous token",
        ),
        RoleKind(
            "self",
            "Looks at the token itself.",
            colors=("#007a58", "#4cc9a0"),
            glyph="M1 1l10 10",
            terminal="green",
            statistic="self",
            phrase="the token itself",
        ),
        RoleKind(
            "first token",
            "Looks at the first token of the text.",
            colors=("#9c3f80", "#e08fc6"),
            glyph="M1.5 1v10",
            terminal="yellow",
            statistic="sink",
            phrase="the first token",
        ),
        RoleKind(
            "position",
            "Looks at one position, or at one distance, whatever the token.",
            colors=("#7d6400", "#d8bf55"),
            glyph="M5 5v6",
            terminal="cyan",
            compute=Tally._position,
        ),
        RoleKind(
            "local",
            "Looks at tokens nearby.",
            colors=("#20789f", "#6cc5e8"),
            glyph="M1 1l10 10M1 3l8 8",
            terminal="cyan",
            compute=Tally._local,
        ),
        RoleKind(
            "broad",
            "Spreads its weights almost evenly over all tokens it may see.",
            colors=("#666b73", "#9aa0a8"),
            glyph="M1 1v10h10z",
            compute=Tally._broad,
            clear=False,
        ),
        RoleKind(
            "mixed",
            "None of these passes its threshold.",
            colors=("#767b84", "#8e949c"),
            glyph="M3 6h1M6 9h1M3 9h1M8 10h1",
            clear=False,
        ),
    )
}
NAMES = ROLES.keys()

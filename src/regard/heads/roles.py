"""Roles: a readable name for what a head does, with the number that says so and the threshold it passed.

| role           | score                                                            | threshold            |
| -------------- | ---------------------------------------------------------------- | -------------------- |
| induction      | mean weight on the token after the last occurrence of this one   | 0.4 of what is left  |
| duplicate      | mean weight on the last occurrence of this token                 | 0.4 of what is left  |
| previous token | mean weight on the token before                                  | 0.4 of what is left  |
| self           | mean weight on the token itself                                  | 0.4 of what is left  |
| first token    | mean weight on the first token                                   | 0.4 of what is left  |
| position       | mean weight on one place, or one step away, whatever stands there | 0.4 of what is left  |
| local          | how much nearer than an even look the head looks, 1 is itself    | 0.75, and 16 tokens  |
| broad          | entropy against that of an even look over the visible keys       | 0.8                  |
| mixed          | none of these                                                    |                      |

"0.4 of what is left": an even look over n visible keys already puts 1/n on any of them. The threshold is that chance
c plus 0.4 of the way from there to 1, c + 0.4 · (1 − c); over a long text it is 0.4, the customary value, and in a
sentence of six words it takes more to convince.

Precedence, the first that holds is the role:
1. induction, duplicate (the larger), unless the same weight is the previous token's or the token's own: where tokens
   stand doubled ("aaaa") the simpler name wins. They come before the first token because such heads rest there
   wherever nothing is repeated, and before position because in a text of one repeated passage they keep one step.
2. previous token, self, first token: the largest of those that pass.
3. position, local, broad.
A score needs at least four tokens to count. Heads of cross-attention can be first token, position (one place), broad or
mixed: nothing in the other text is a query's own token, or near it.

Against TransformerLens' detect_head (error_measure="mul"): its previous-token score is the same sum of weights, divided
by all rows where ours leaves out the first, which has no previous token. Its duplicate and induction patterns take
every earlier occurrence, ours the last, and it divides by all rows where ours counts those whose token occurred before;
on a passage of different tokens said twice, the two differ by that divisor only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.heads.record import Record

NAMES = (
    "induction",
    "duplicate",
    "previous token",
    "self",
    "first token",
    "position",
    "local",
    "broad",
    "mixed",
)
PATTERN = 0.4  # of the way from chance to certainty
LOCAL, LOCAL_TOKENS = 0.75, 16.0
BROAD = 0.8
ENOUGH = 4  # tokens that a score must rest on

_MEANS = ("entropy", "distance", "sink", "previous", "self", "induction", "duplicate", "largest")
_PATTERNS = {  # role: its statistic, and how the evidence names it
    "induction": ("induction", "after the last occurrence of the same token"),
    "duplicate": ("duplicate", "the last occurrence of the same token"),
    "previous token": ("previous", "the previous token"),
    "self": ("self", "the token itself"),
    "first token": ("sink", "the first token"),
}


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
        return self.name not in ("mixed", "broad")


@dataclass(frozen=True)
class _Place:
    """One place, or one step, that a head keeps to."""

    score: float
    words: str


class Tally:
    """The sums over all rows of one layer, in one forward or several, that means and roles are read from."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._heads = records[0].sizes[1]
        self._sums: dict[str, Tensor] = {}
        self._rows: dict[str, Tensor] = {}
        self._chance: dict[str, Tensor] = {}
        self._even_entropy = self._even_distance = torch.zeros(self._heads, dtype=torch.float64)
        reach = max(max(record.sizes[2:]) for record in records)
        self._steps = torch.zeros(self._heads, 2 * reach + 1, dtype=torch.float64)  # weight by steps back, from −reach
        self._places = torch.zeros(self._heads, reach + 1, dtype=torch.float64)
        self._reach = reach
        for record in records:
            self._add(record)

    def _add(self, record: Record) -> None:
        visible, even = (x.cpu().double() for x in record.visible())
        for name in _MEANS:
            if not all(name in step.found for step in record.steps):
                continue
            rows = record.read(name).cpu().double()  # (B, H, T)
            known = ~rows.isnan()
            for sums, value in ((self._sums, rows), (self._rows, known.double()), (self._chance, 1 / visible)):
                total = torch.where(known, value, 0.0).nansum((0, 2))
                sums[name] = sums[name] + total if name in sums else total
            if name == "entropy":
                self._even_entropy = self._even_entropy + torch.where(known, visible.log(), 0.0).nansum((0, 2))
            if name == "distance":
                self._even_distance = self._even_distance + torch.where(known, even, 0.0).nansum((0, 2))
        if all({"largest", "largest_key"} <= set(step.found) for step in record.steps):
            self._add_places(record)

    def _add_places(self, record: Record) -> None:
        key = record.read("largest_key").cpu().long()  # (B, H, T)
        weight = record.read("largest").cpu().double()
        weight = torch.where((key < 0) | weight.isnan(), 0.0, weight)
        back = torch.where(key < 0, 0, record.places() - key) + self._reach
        places = [(self._places, key.clamp(min=0))]
        if not record.across:  # there, no key is some steps away from a query
            places.append((self._steps, back))
        for bins, where in places:
            bins.scatter_add_(1, _by_head(where), _by_head(weight))

    def mean(self, name: str, head: int) -> float:
        """The mean over the rows that have a value; NaN where none has, or the statistic was not collected."""
        if name not in self._sums or not float(self._rows[name][head]):
            return math.nan
        return float(self._sums[name][head] / self._rows[name][head])

    def means(self, head: int) -> dict[str, float]:
        """All means of one head, by name."""
        return {name: self.mean(name, head) for name in _MEANS if name in self._sums}

    def role(self, head: int) -> Role:
        """The role of one head."""
        found = {name: role for name in _PATTERNS if (role := self._pattern(name, head))}
        passed = {name: role for name, role in found.items() if role.score >= role.threshold}
        simpler = max((found[name].score for name in ("previous token", "self") if name in found), default=0.0)
        for names, at_least in ((("induction", "duplicate"), simpler), (("previous token", "self", "first token"), 0)):
            able = [passed[name] for name in names if name in passed and passed[name].score > at_least]
            if able:
                return max(able, key=lambda role: role.score)
        others = [role for role in (self._position(head), self._local(head), self._broad(head)) if role]
        for role in others:
            if self._holds(role, head):
                return role
        return _mixed([*found.values(), *others])

    def _holds(self, role: Role, head: int) -> bool:
        near = role.name != "local" or self.mean("distance", head) <= LOCAL_TOKENS
        return role.score >= role.threshold and near

    def _pattern(self, name: str, head: int) -> Role | None:
        statistic, words = _PATTERNS[name]
        if statistic not in self._rows or float(self._rows[statistic][head]) < ENOUGH:
            return None
        score, threshold = self.mean(statistic, head), self._threshold(statistic, head)
        rows = int(self._rows[statistic][head])
        over = f" over {rows} repeated tokens" if name in ("induction", "duplicate") else " on average"
        return Role(name, score, threshold, f"weight on {words} {score:.2f}{over}, threshold {threshold:.2f}")

    def _threshold(self, statistic: str, head: int) -> float:
        chance = float(self._chance[statistic][head] / self._rows[statistic][head])
        return chance + PATTERN * (1 - chance)

    def _position(self, head: int) -> Role | None:
        if "largest" not in self._rows or float(self._rows["largest"][head]) < ENOUGH:
            return None
        rows = float(self._rows["largest"][head])
        back = self._steps[head].clone()
        back[self._reach : self._reach + 2] = 0  # itself and the previous token have names of their own
        steps = int(back.argmax()) - self._reach
        key = int(self._places[head].argmax())
        best = max(
            _Place(float(back.max()) / rows, f"the token {abs(steps)} {'back' if steps > 0 else 'ahead'}"),
            _Place(float(self._places[head].max()) / rows, f"token {key}"),
            key=lambda place: place.score,
        )
        threshold = self._threshold("largest", head)
        evidence = f"weight on {best.words} {best.score:.2f} on average, threshold {threshold:.2f}"
        return Role("position", best.score, threshold, evidence)

    def _local(self, head: int) -> Role | None:
        if "distance" not in self._rows or float(self._rows["distance"][head]) < ENOUGH:
            return None
        mean, even = self.mean("distance", head), float(self._even_distance[head] / self._rows["distance"][head])
        if not even > 0:
            return None
        score = 1 - mean / even
        evidence = (
            f"looks {mean:.1f} tokens away on average where an even look would be {even:.1f}: "
            f"{score:.2f} nearer, threshold {LOCAL:.2f} and at most {LOCAL_TOKENS:.0f} tokens"
        )
        return Role("local", score, LOCAL, evidence)

    def _broad(self, head: int) -> Role | None:
        if "entropy" not in self._rows or float(self._rows["entropy"][head]) < ENOUGH:
            return None
        if not float(self._even_entropy[head]) > 0:
            return None
        score = float(self._sums["entropy"][head] / self._even_entropy[head])
        return Role("broad", score, BROAD, f"entropy {score:.2f} of an even look's, threshold {BROAD:.2f}")


def _mixed(others: list[Role]) -> Role:
    if not others:
        return Role("mixed", math.nan, math.nan, f"fewer than {ENOUGH} tokens, or nothing collected, to judge by")
    nearest = max(others, key=lambda role: role.score - role.threshold)
    return Role("mixed", nearest.score, nearest.threshold, f"nothing passes; nearest is {nearest}")


def _by_head(x: Tensor) -> Tensor:
    """(B, H, T) → (H, B · T)"""
    return x.transpose(0, 1).flatten(1)
